// SPDX-License-Identifier: Apache-2.0
#include "config/config_schema.h"

namespace lockstep {
namespace {

/// Adds the keys of one section under one heading of --help. A path to a field becomes an accessor.
template <class Section>
struct Rows {
  std::string section;
  Section Config::*part;
  std::string heading;
  std::vector<ConfigKey>& keys;

  /// Adds a number.
  template <class T>
  void add(const char* name, T Section::*member, KeyClass key_class, const NumberRange& range,
           const char* unit, const char* meaning) {
    const auto field = [part = part, member](Config& config) { return ConfigField(&(config.*part.*member)); };
    keys.push_back({section + "." + name, key_class, field, unit, meaning, range, {}, heading});
  }
  /// Adds a text, or true or false.
  template <class T>
  void add(const char* name, T Section::*member, KeyClass key_class, const char* meaning,
           const std::vector<std::string>& choices = {}) {
    add(name, member, key_class, {}, "", meaning);
    keys.back().choices = choices;
  }
  /// Adds a text that may be a path.
  void add_path(const char* name, std::string Section::*member, KeyClass key_class, const char* meaning) {
    add(name, member, key_class, meaning);
    keys.back().is_path = true;
  }
};

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ModelPreset& preset : model_presets()) names.push_back(preset.name);
  names.emplace_back();  // no preset
  return names;
}

constexpr auto semantic = KeyClass::semantic;
constexpr auto collective = KeyClass::collective;
constexpr auto local = KeyClass::local;

constexpr NumberRange at_least(double low) { return {.low = low}; }
constexpr NumberRange above(double low) { return {.low = low, .low_open = true}; }
constexpr NumberRange unit_interval{.low = 0, .high = 1, .high_open = true};

void add_data(Rows<DataConfig> rows) {
  using C = DataConfig;
  // A run compares the hash of the contents, not this name: the same text may come from another place.
  rows.add_path(
      "dataset", &C::dataset, collective,
      "training data: shakespeare, sample (built in) or random_tokens; a path or URL (https, s3) of a "
      "text or of examples (JSON lines); or a folder of texts (*.txt)");
  rows.add_path("tokenizer", &C::tokenizer, collective,
                "char: one token per character. Or the file of a tokenizer (tokenizer.json, vocab.json, "
                "*.tiktoken), or its folder. auto: the tokenizer of model.from, else char");
  rows.add("block_size", &C::block_size, semantic, at_least(1), "tokens",
           "length of a training sequence (context length)");
  rows.add("train_split", &C::train_split, semantic, {.low = 0, .high = 1, .low_open = true}, "share",
           "share of the data to train on; the rest is for validation; 1: no validation");
  rows.add("loss_on", &C::loss_on, semantic, "examples only: the tokens that count in the loss",
           {"answer", "all"});
  rows.add("packing", &C::packing, semantic,
           "examples only: true packs several examples into a block, and each attends to those before it; "
           "false: one example per block");
}

void add_model(Rows<ModelConfig> rows) {
  using C = ModelConfig;
  // A run compares the model's sizes and the hash of its contents, not this name.
  rows.add_path(
      "from", &C::from, collective,
      "a new run starts with the sizes and weights of this model: a Hugging Face folder of a GPT-2 (a path, "
      "s3:// or https://), or a run or snapshot of this program. Empty: random weights");
  // The sizes are semantic themselves, so a run does not depend on the name of its preset.
  rows.add("preset", &C::preset, collective,
           "sets n_layer, n_head and n_embd where neither the file nor the command line sets them",
           preset_names());
  rows.add("n_layer", &C::n_layer, semantic, at_least(1), "blocks", "transformer blocks");
  rows.add("n_head", &C::n_head, semantic, at_least(1), "heads",
           "attention heads per block; n_embd is a multiple of it");
  rows.add("n_embd", &C::n_embd, semantic, at_least(1), "channels", "width of the residual stream");
  rows.add("vocab_size", &C::vocab_size, semantic, at_least(0), "tokens",
           "rows of the token embedding; 0: the size of the tokenizer's vocabulary");
  rows.add("vocab_multiple", &C::vocab_multiple, semantic, {.low = 0, .high = 1 << 20}, "rows",
           "pad the embedding in memory to a multiple of this many rows (faster matmuls; padding is masked); "
           "0: 64 with model.from, else 1");
  rows.add("n_positions", &C::n_positions, semantic, at_least(0), "positions",
           "longest context of the model; 0: data.block_size");
  rows.add("dropout", &C::dropout, semantic, unit_interval, "",
           "probability of dropping an activation in training");
  rows.add("bias", &C::bias, semantic, "biases in linear layers and layer norms");
  rows.add("tie_weights", &C::tie_weights, semantic,
           "the output head shares the weight of the token embedding");
  rows.add("activation", &C::activation, semantic,
           "activation of the MLP: GELU approximated by tanh (as GPT-2), or exact GELU",
           {"gelu_tanh", "gelu_erf"});
}

void add_length(Rows<TrainConfig> rows) {
  using C = TrainConfig;
  // A run may be given more steps: its schedule depends on train.decay_steps, not on its length.
  rows.add("steps", &C::steps, collective, at_least(0), "steps", "length of the run; 0: use train.epochs");
  rows.add("epochs", &C::epochs, collective, at_least(0), "epochs",
           "length of the run in passes over the data (for a text: over its tokens); 0: use train.steps");
  rows.add("batch_size", &C::batch_size, semantic, at_least(1), "sequences",
           "sequences per replica and step; the global batch is dist.replicas times as large");
  rows.add("accumulate", &C::accumulate, semantic, {.low = 1, .high = 1 << 30}, "micro-batches",
           "micro-batches per replica and step (gradient accumulation); batch_size is a multiple of it");
}

void add_learning_rate(Rows<TrainConfig> rows) {
  using C = TrainConfig;
  rows.add("learning_rate", &C::learning_rate, semantic, at_least(0), "",
           "highest learning rate, reached after the warm-up");
  rows.add("warmup_steps", &C::warmup_steps, semantic, at_least(0), "steps",
           "steps in which the learning rate rises linearly");
  rows.add("min_lr", &C::min_lr, semantic, at_least(0), "", "final learning rate, kept after the decay");
  rows.add("decay_steps", &C::decay_steps, semantic, at_least(0), "steps",
           "step at which the decay ends; 0: the last step that the first start of the run planned");
  rows.add(
      "schedule", &C::schedule, semantic,
      "after the warm-up: cosine decays along a cosine; wsd (warm-up, stable, decay) stays constant and then "
      "decays linearly; constant stays",
      {"cosine", "wsd", "constant"});
  rows.add("cooldown_steps", &C::cooldown_steps, semantic, at_least(0), "steps",
           "wsd only: steps of the linear decay, which ends at train.decay_steps; 0: a tenth of decay_steps");
}

void add_optimizer(Rows<TrainConfig> rows) {
  using C = TrainConfig;
  rows.add("weight_decay", &C::weight_decay, semantic, at_least(0), "",
           "decoupled weight decay (AdamW), of matrices only");
  rows.add(
      "freeze", &C::freeze, semantic,
      "parameters that are not trained: patterns of names, separated by commas, such as transformer.wte.*, "
      "transformer.h.0.*");
  rows.add("groups", &C::groups, semantic,
           "parameter groups with own settings, separated by commas: PATTERN lr_factor=K weight_decay=K. "
           "lr_factor multiplies the learning rate");
  rows.add("beta1", &C::beta1, semantic, unit_interval, "", "AdamW: decay of the first moment");
  rows.add("beta2", &C::beta2, semantic, unit_interval, "", "AdamW: decay of the second moment");
  rows.add("grad_clip", &C::grad_clip, semantic, at_least(0), "",
           "largest norm of the gradient; a longer gradient is scaled down to it; 0: no clipping");
}

void add_arithmetic(Rows<TrainConfig> rows) {
  using C = TrainConfig;
  rows.add("seed", &C::seed, semantic, at_least(0), "", "seed of initial weights, data order and dropout");
  rows.add("device", &C::device, semantic, "auto: a GPU if this process sees one, else the CPU",
           {"auto", "cpu", "cuda"});
  rows.add(
      "precision", &C::precision, semantic,
      "dtype of activations and matmuls. Weights, their gradients and sums stay fp32; fp16 scales the loss",
      {"fp32", "bf16", "fp16"});
  rows.add(
      "amx", &C::amx, semantic,
      "bf16 matmuls use AMX (Intel Xeon since Sapphire Rapids): faster, but the results have other bits");
  rows.add("graph", &C::graph, collective,
           "GPU only: record a step once as a CUDA graph and replay it (same bits, less waiting)");
  rows.add("tune_matmul", &C::tune_matmul, semantic,
           "GPU only: time the library's algorithms for each matmul and keep the fastest in a file, on which "
           "the bits then depend; false: take the first choice of the library");
}

void add_memory(Rows<TrainConfig> rows) {
  using C = TrainConfig;
  rows.add("logit_rows", &C::logit_rows, semantic, at_least(0), "rows",
           "rows of logits (sequences x block_size) in memory at a time; 0: all of a micro-batch");
  rows.add(
      "recompute", &C::recompute, collective,
      "activation checkpointing: compute again in the backward pass the attention of each block, each "
      "block, or all but the last of K segments of blocks (same bits, less memory, up to a third more work)",
      {"none", "attention", "block", "segments=K"});
  rows.add("threads", &C::threads, local, {.low = 0, .high = 1 << 20}, "threads",
           "CPU threads per rank; 0: this rank's share of the cores");
  rows.add("memory_gib", &C::memory_gib, local, at_least(0), "GiB",
           "memory limit of a rank, checked by --plan and before the first step; 0: the machine's memory");
}

void add_validation(Rows<TrainConfig> rows) {
  using C = TrainConfig;
  rows.add("eval_every", &C::eval_every, collective, at_least(-1), "steps",
           "steps between validations; 0: only after the last step; -1: never");
  rows.add("patience", &C::patience, collective, at_least(0), "validations",
           "early stopping: end after this many validations in a row without a better loss; 0: disabled");
  rows.add("min_delta", &C::min_delta, collective, at_least(0), "",
           "early stopping: a loss is better if it is lower than the best one by more than this");
  rows.add("sample_every", &C::sample_every, collective, at_least(0), "steps",
           "steps between texts that the model generates; 0: never");
}

void add_dist(Rows<DistConfig> rows) {
  using C = DistConfig;
  rows.add(
      "replicas", &C::replicas, semantic, {.low = 0, .high = 1 << 20}, "replicas",
      "logical data-parallel workers, each with a batch per step. They fix the bits; the number of ranks "
      "does not. 0: one per rank of the first start");
  rows.add("reduction", &C::reduction, semantic,
           "tree: same bits at any number of ranks; native: the all-reduce of MPI or NCCL",
           {"tree", "native"});
  rows.add(
      "shard", &C::shard, collective,
      "sharding (same bits, less memory): none; the optimizer's states (ZeRO 1); gradients too (ZeRO 2); "
      "parameters too (ZeRO 3, FSDP). PyTorch's names are accepted",
      {"none", "optimizer", "gradients", "full", "NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD"});
  rows.add("group", &C::group, collective, {.low = 0, .high = 1 << 20}, "ranks",
           "dist.shard = full only: neighbouring ranks that hold all parameters together; 0: all ranks, or "
           "the ranks of a host with HYBRID_SHARD");
  rows.add(
      "offload", &C::offload, collective,
      "GPU only: optimizer keeps the optimizer's states and fp32 weights in host memory and updates them "
      "there; all keeps all weights there and copies them block by block (same bits, slower)",
      {"none", "optimizer", "all"});
  rows.add("bucket_mib", &C::bucket_mib, collective, above(0), "MiB",
           "size of a bucket: the gradients that are reduced together");
  rows.add("timeout_s", &C::timeout_s, collective, above(0), "seconds",
           "a rank that does not answer for this long ends the run");
}

void add_snapshot(Rows<SnapshotConfig> rows) {
  using C = SnapshotConfig;
  rows.add_path(
      "path", &C::path, collective,
      "folder or s3://bucket/prefix of the snapshots; auto: snapshots/ in log.dir; none: the trained "
      "model is not kept");
  rows.add("every_minutes", &C::every_minutes, collective, at_least(0), "minutes",
           "minutes between snapshots; 0: not by time. The last step always has one");
  rows.add("every_steps", &C::every_steps, collective, at_least(0), "steps",
           "steps between snapshots; 0: not by steps");
  rows.add("keep", &C::keep, collective, at_least(1), "snapshots",
           "newest snapshots to keep, besides the best one");
  rows.add("resume", &C::resume, collective,
           "auto: resume an unfinished run in log.dir; keep a finished one, or move it aside if its settings "
           "differ. never: move any run aside. required: only resume",
           {"auto", "never", "required"});
  rows.add("wait_minutes", &C::wait_minutes, collective, at_least(0), "minutes",
           "wait this long for another run that writes to the same place. At least 10 for a bucket, under "
           "lockrun and after a requeue");
}

void add_log(Rows<LogConfig> rows) {
  using C = LogConfig;
  rows.add_path("dir", &C::dir, local,
                "folder of the results; empty: runs/<name of the file>, or without a file "
                "runs/<program>-<model.from>-<dataset>");
  rows.add(
      "every_steps", &C::every_steps, local, at_least(1), "steps",
      "fewest steps between log lines where the output is no terminal. Lines come at most twice a second "
      "in the first ten seconds, later at most every ten seconds");
}

}  // namespace

const std::vector<ModelPreset>& model_presets() {
  static const std::vector<ModelPreset> presets = {
      {"openai-gpt", 12, 12, 768},  {"gpt2", 12, 12, 768},     {"gpt2-medium", 24, 16, 1024},
      {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}, {"gopher-44m", 8, 16, 512},
      {"gpt-mini", 6, 6, 192},      {"gpt-micro", 4, 4, 128},  {"gpt-nano", 3, 3, 48},
  };
  return presets;
}

const std::vector<ConfigKey>& config_schema() {
  static const std::vector<ConfigKey> schema = [] {
    std::vector<ConfigKey> keys;
    add_data({"data", &Config::data, "Data", keys});
    add_model({"model", &Config::model, "Model", keys});
    add_length({"train", &Config::train, "Length and batch", keys});
    add_learning_rate({"train", &Config::train, "Learning rate", keys});
    add_optimizer({"train", &Config::train, "Optimizer", keys});
    add_arithmetic({"train", &Config::train, "Seed, device and precision", keys});
    add_memory({"train", &Config::train, "Memory and threads", keys});
    add_validation({"train", &Config::train, "Validation", keys});
    add_dist({"dist", &Config::dist, "Ranks", keys});
    add_snapshot({"snapshot", &Config::snapshot, "Snapshots", keys});
    add_log({"log", &Config::log, "Log", keys});
    return keys;
  }();
  return schema;
}

}  // namespace lockstep
