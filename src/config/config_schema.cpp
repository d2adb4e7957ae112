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

  template <class T>
  void add(const char* name, T Section::*member, KeyClass key_class, const char* unit, const char* meaning,
           NumberRange range = {}, std::vector<std::string> choices = {}) {
    const auto field = [part = part, member](Config& config) { return ConfigField(&(config.*part.*member)); };
    keys.push_back(
        {section + "." + name, key_class, field, unit, meaning, range, std::move(choices), heading});
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

constexpr NumberRange any{};
constexpr NumberRange at_least(double low) { return {.low = low}; }
constexpr NumberRange above(double low) { return {.low = low, .low_open = true}; }
constexpr NumberRange unit_interval{.low = 0, .high = 1, .high_open = true};

void add_data(Rows<DataConfig> rows) {
  using C = DataConfig;
  // A run compares the hash of the contents, not this name: the same text may come from another place.
  rows.add("dataset", &C::dataset, collective, "",
           "training data: shakespeare, sample (built in) or random_tokens; a path or URL (https, s3) of a "
           "text or of examples (*.jsonl); or a folder of texts (*.txt)");
  rows.add("tokenizer", &C::tokenizer, collective, "",
           "char: one token per character. Or the file of a tokenizer (tokenizer.json, vocab.json, "
           "*.tiktoken), or its folder. auto: the tokenizer of model.from, else char");
  rows.add("block_size", &C::block_size, semantic, "tokens", "length of a training sequence (context length)",
           at_least(1));
  rows.add("train_split", &C::train_split, semantic, "share",
           "share of the data to train on; the rest is for validation",
           {.low = 0, .high = 1, .low_open = true, .high_open = true});
  rows.add("loss_on", &C::loss_on, semantic, "", "examples only: the tokens that count in the loss", any,
           {"answer", "all"});
  rows.add("packing", &C::packing, semantic, "",
           "examples only: true packs several examples into a block, and each attends to those before it; "
           "false: one example per block");
}

void add_model(Rows<ModelConfig> rows) {
  using C = ModelConfig;
  // A run compares the model's sizes and the hash of its contents, not this name.
  rows.add(
      "from", &C::from, collective, "",
      "a new run starts with the sizes and weights of this model: a Hugging Face folder of a GPT-2 (a path, "
      "s3:// or https://), or a run or snapshot of this program. Empty: random weights");
  // The sizes are semantic themselves, so a run does not depend on the name of its preset.
  rows.add("preset", &C::preset, collective, "",
           "sets n_layer, n_head and n_embd where neither the file nor the command line sets them", any,
           preset_names());
  rows.add("n_layer", &C::n_layer, semantic, "blocks", "transformer blocks", at_least(1));
  rows.add("n_head", &C::n_head, semantic, "heads", "attention heads per block; n_embd is a multiple of it",
           at_least(1));
  rows.add("n_embd", &C::n_embd, semantic, "channels", "width of the residual stream", at_least(1));
  rows.add("vocab_size", &C::vocab_size, semantic, "tokens",
           "rows of the token embedding; 0: the size of the tokenizer's vocabulary", at_least(0));
  rows.add("vocab_multiple", &C::vocab_multiple, semantic, "rows",
           "pad the embedding in memory to a multiple of this many rows (faster matmuls; padding is masked); "
           "0: 64 with model.from, else 1",
           {.low = 0, .high = 1 << 20});
  rows.add("n_positions", &C::n_positions, semantic, "positions",
           "longest context of the model; 0: data.block_size", at_least(0));
  rows.add("dropout", &C::dropout, semantic, "", "probability of dropping an activation in training",
           unit_interval);
  rows.add("bias", &C::bias, semantic, "", "biases in linear layers and layer norms");
  rows.add("tie_weights", &C::tie_weights, semantic, "",
           "the output head shares the weight of the token embedding");
  rows.add("activation", &C::activation, semantic, "",
           "activation of the MLP: GELU approximated by tanh (as GPT-2), or exact GELU", any,
           {"gelu_tanh", "gelu_erf"});
}

void add_length(Rows<TrainConfig> rows) {
  using C = TrainConfig;
  // A run may be given more steps: its schedule depends on train.decay_steps, not on its length.
  rows.add("steps", &C::steps, collective, "steps", "length of the run; 0: use train.epochs", at_least(0));
  rows.add("epochs", &C::epochs, collective, "epochs",
           "length of the run in passes over the data (for a text: over its tokens); 0: use train.steps",
           at_least(0));
  rows.add("batch_size", &C::batch_size, semantic, "sequences",
           "sequences per replica and step; the global batch is dist.replicas times as large", at_least(1));
  rows.add("accumulate", &C::accumulate, semantic, "micro-batches",
           "micro-batches per replica and step (gradient accumulation); batch_size is a multiple of it",
           {.low = 1, .high = 1 << 30});
}

void add_learning_rate(Rows<TrainConfig> rows) {
  using C = TrainConfig;
  rows.add("learning_rate", &C::learning_rate, semantic, "",
           "highest learning rate, reached after the warm-up", at_least(0));
  rows.add("warmup_steps", &C::warmup_steps, semantic, "steps",
           "steps in which the learning rate rises linearly", at_least(0));
  rows.add("min_lr", &C::min_lr, semantic, "", "final learning rate, kept after the decay", at_least(0));
  rows.add("decay_steps", &C::decay_steps, semantic, "steps",
           "step at which the decay ends; 0: the last step that the first start of the run planned",
           at_least(0));
  rows.add(
      "schedule", &C::schedule, semantic, "",
      "after the warm-up: cosine decays along a cosine; wsd (warm-up, stable, decay) stays constant and then "
      "decays linearly; constant stays",
      any, {"cosine", "wsd", "constant"});
  rows.add("cooldown_steps", &C::cooldown_steps, semantic, "steps",
           "wsd only: steps of the linear decay, which ends at train.decay_steps; 0: a tenth of decay_steps",
           at_least(0));
}

void add_optimizer(Rows<TrainConfig> rows) {
  using C = TrainConfig;
  rows.add("weight_decay", &C::weight_decay, semantic, "", "decoupled weight decay (AdamW), of matrices only",
           at_least(0));
  rows.add(
      "freeze", &C::freeze, semantic, "",
      "parameters that are not trained: patterns of names, separated by commas, such as transformer.wte.*, "
      "transformer.h.0.*");
  rows.add("groups", &C::groups, semantic, "",
           "parameter groups with own settings, separated by commas: PATTERN lr_factor=K weight_decay=K. "
           "lr_factor multiplies the learning rate");
  rows.add("beta1", &C::beta1, semantic, "", "AdamW: decay of the first moment", unit_interval);
  rows.add("beta2", &C::beta2, semantic, "", "AdamW: decay of the second moment", unit_interval);
  rows.add("grad_clip", &C::grad_clip, semantic, "",
           "largest norm of the gradient; a longer gradient is scaled down to it; 0: no clipping",
           at_least(0));
}

void add_arithmetic(Rows<TrainConfig> rows) {
  using C = TrainConfig;
  rows.add("seed", &C::seed, semantic, "", "seed of initial weights, data order and dropout", at_least(0));
  rows.add("device", &C::device, semantic, "", "auto: a GPU if this process sees one, else the CPU", any,
           {"auto", "cpu", "cuda"});
  rows.add(
      "precision", &C::precision, semantic, "",
      "dtype of activations and matmuls. Weights, their gradients and sums stay fp32; fp16 scales the loss",
      any, {"fp32", "bf16", "fp16"});
  rows.add(
      "amx", &C::amx, semantic, "",
      "bf16 matmuls use AMX (Intel Xeon since Sapphire Rapids): faster, but the results have other bits");
  rows.add("graph", &C::graph, collective, "",
           "GPU only: record a step once as a CUDA graph and replay it (same bits, less waiting)");
  rows.add("tune_matmul", &C::tune_matmul, semantic, "",
           "GPU only: time the library's algorithms for each matmul and keep the fastest in a file, on which "
           "the bits then depend; false: take the first choice of the library");
}

void add_memory(Rows<TrainConfig> rows) {
  using C = TrainConfig;
  rows.add("logit_rows", &C::logit_rows, semantic, "rows",
           "rows of logits (sequences x block_size) in memory at a time; 0: all of a micro-batch",
           at_least(0));
  rows.add(
      "recompute", &C::recompute, collective, "",
      "activation checkpointing: compute again in the backward pass the attention of each block, each "
      "block, or all but the last of K segments of blocks (same bits, less memory, up to a third more work)",
      any, {"none", "attention", "block", "segments=K"});
  rows.add("threads", &C::threads, local, "threads",
           "CPU threads per rank; 0: this rank's share of the cores", at_least(0));
  rows.add("memory_gib", &C::memory_gib, local, "GiB",
           "memory limit of a rank, checked by --plan and before the first step; 0: the machine's memory",
           at_least(0));
}

void add_validation(Rows<TrainConfig> rows) {
  using C = TrainConfig;
  rows.add("eval_every", &C::eval_every, collective, "steps",
           "steps between validations; 0: only after the last step; -1: never", at_least(-1));
  rows.add("patience", &C::patience, collective, "validations",
           "early stopping: end after this many validations in a row without a better loss; 0: disabled",
           at_least(0));
  rows.add("min_delta", &C::min_delta, collective, "",
           "early stopping: a loss is better if it is lower than the best one by more than this",
           at_least(0));
  rows.add("sample_every", &C::sample_every, collective, "steps",
           "steps between texts that the model generates; 0: never", at_least(0));
}

void add_dist(Rows<DistConfig> rows) {
  using C = DistConfig;
  rows.add(
      "replicas", &C::replicas, semantic, "replicas",
      "logical data-parallel workers, each with a batch per step. They fix the bits; the number of ranks "
      "does not. 0: one per rank of the first start",
      {.low = 0, .high = 1 << 30});
  rows.add("reduction", &C::reduction, semantic, "",
           "tree: same bits at any number of ranks; native: the all-reduce of MPI or NCCL", any,
           {"tree", "native"});
  rows.add(
      "shard", &C::shard, collective, "",
      "sharding (same bits, less memory): none; the optimizer's states (ZeRO 1); gradients too (ZeRO 2); "
      "parameters too (ZeRO 3, FSDP). PyTorch's names are accepted",
      any,
      {"none", "optimizer", "gradients", "full", "NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD"});
  rows.add("group", &C::group, collective, "ranks",
           "dist.shard = full only: neighbouring ranks that hold all parameters together; 0: all ranks, or "
           "the ranks of a host with HYBRID_SHARD",
           {.low = 0, .high = 1 << 30});
  rows.add(
      "offload", &C::offload, collective, "",
      "GPU only: optimizer keeps the optimizer's states and fp32 weights in host memory and updates them "
      "there; all keeps all weights there and copies them block by block (same bits, slower)",
      any, {"none", "optimizer", "all"});
  rows.add("bucket_mib", &C::bucket_mib, collective, "MiB",
           "size of a bucket: the gradients that are reduced together", above(0));
  rows.add("timeout_s", &C::timeout_s, collective, "seconds",
           "a rank that does not answer for this long ends the run", above(0));
}

void add_snapshot(Rows<SnapshotConfig> rows) {
  using C = SnapshotConfig;
  rows.add("path", &C::path, collective, "",
           "folder or s3://bucket/prefix of the snapshots; auto: snapshots/ in log.dir; none: the trained "
           "model is not kept");
  rows.add("every_minutes", &C::every_minutes, collective, "minutes",
           "minutes between snapshots; 0: not by time. The last step always has one", at_least(0));
  rows.add("every_steps", &C::every_steps, collective, "steps", "steps between snapshots; 0: not by steps",
           at_least(0));
  rows.add("keep", &C::keep, collective, "snapshots", "newest snapshots to keep, besides the best one",
           at_least(1));
  rows.add("resume", &C::resume, collective, "",
           "auto: resume an unfinished run in log.dir; keep a finished one, or move it aside if its settings "
           "differ. never: move any run aside. required: only resume",
           any, {"auto", "never", "required"});
}

void add_log(Rows<LogConfig> rows) {
  using C = LogConfig;
  rows.add("dir", &C::dir, local, "", "folder of the results; empty: runs/<name of the configuration>");
  rows.add(
      "every_steps", &C::every_steps, local, "steps",
      "fewest steps between log lines where the output is no terminal. Lines come at most twice a second "
      "in the first ten seconds, later at most every ten seconds",
      at_least(1));
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
