// SPDX-License-Identifier: Apache-2.0
#include "config/config_schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/text.h"

namespace lockstep {
namespace {

/// How a section's rows are written: the path to a field becomes an accessor.
template <class Section>
struct Rows {
  std::string section;
  Section Config::*part;
  std::vector<ConfigKey>& keys;

  template <class T>
  void add(const char* name, T Section::*member, KeyClass key_class, const char* unit, const char* meaning,
           NumberRange range = {}, std::vector<std::string> choices = {}) {
    const auto field = [part = part, member](Config& config) { return ConfigField(&(config.*part.*member)); };
    keys.push_back({section + "." + name, key_class, field, unit, meaning, range, std::move(choices)});
  }
};

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ModelPreset& preset : model_presets()) names.push_back(preset.name);
  names.emplace_back();  // none
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
  // What fixes the bits is its content, whose hash a run keeps: the same text may come from another place.
  rows.add(
      "dataset", &C::dataset, collective, "",
      "shakespeare, sample (built in), random_tokens, the path or URL (https, s3) of a text or of examples "
      "(*.jsonl), or a folder of texts *.txt");
  rows.add(
      "tokenizer", &C::tokenizer, collective, "",
      "how text becomes tokens: char makes every character one; else the file of a tokenizer "
      "(tokenizer.json, vocab.json, *.tiktoken) or the folder that holds it; auto: that of the model the "
      "run starts from, else char");
  rows.add("block_size", &C::block_size, semantic, "tokens", "length of a training sequence", at_least(1));
  rows.add("train_split", &C::train_split, semantic, "share",
           "part of the corpus to train on; the rest is for validation",
           {.low = 0, .high = 1, .low_open = true, .high_open = true});
  rows.add("loss_on", &C::loss_on, semantic, "", "of examples: which tokens count in the loss", any,
           {"answer", "all"});
  rows.add("packing", &C::packing, semantic, "",
           "of examples: a block takes several, each of which attends to those before it; else one");
}

void add_model(Rows<ModelConfig> rows) {
  using C = ModelConfig;
  // What it stands for is: its sizes, and a hash of its contents.
  rows.add(
      "from", &C::from, collective, "",
      "a Hugging Face folder of a GPT-2 (a path, s3:// or https://), or a snapshot or run of this program, "
      "whose sizes and weights a new run begins with; empty: random weights");
  // The sizes it stands for are semantic themselves: the same model without its preset's name is the same
  // run.
  rows.add("preset", &C::preset, collective, "", "sets n_layer, n_head and n_embd unless they are given", any,
           preset_names());
  rows.add("n_layer", &C::n_layer, semantic, "blocks", "number of transformer blocks", at_least(1));
  rows.add("n_head", &C::n_head, semantic, "heads", "attention heads in a block; divides n_embd",
           at_least(1));
  rows.add("n_embd", &C::n_embd, semantic, "channels", "width of the residual stream", at_least(1));
  rows.add("vocab_size", &C::vocab_size, semantic, "tokens",
           "rows of the embedding; 0: as many as the data needs", at_least(0));
  rows.add(
      "vocab_multiple", &C::vocab_multiple, semantic, "rows",
      "in memory alone the embedding has a multiple of so many, for faster products; what is added takes "
      "no part; 0: 64 with model.from, else 1",
      {.low = 0, .high = 1 << 20});
  rows.add("n_positions", &C::n_positions, semantic, "positions",
           "the longest context of the model; 0: data.block_size", at_least(0));
  rows.add("dropout", &C::dropout, semantic, "", "share of activations dropped while training",
           unit_interval);
  rows.add("bias", &C::bias, semantic, "", "biases in linear layers and layer norms");
  rows.add("tie_weights", &C::tie_weights, semantic, "",
           "the output head shares the token embedding's weight");
  rows.add("activation", &C::activation, semantic, "",
           "in the MLP: GELU approximated by tanh, as GPT-2, or exact", any, {"gelu_tanh", "gelu_erf"});
}

void add_optimization(Rows<TrainConfig> rows) {
  using C = TrainConfig;
  // What the length of a run does to every step is train.decay_steps, so a run may be given more steps.
  rows.add("steps", &C::steps, collective, "steps", "length of the run; 0: train.epochs says it",
           at_least(0));
  rows.add("epochs", &C::epochs, collective, "epochs",
           "length of the run in passes over the data, for text over its tokens; 0: train.steps says it",
           at_least(0));
  rows.add("batch_size", &C::batch_size, semantic, "sequences", "sequences of one replica in one step",
           at_least(1));
  rows.add("accumulate", &C::accumulate, semantic, "parts",
           "micro-batches that a replica's batch is split into", {.low = 1, .high = 1 << 30});
  rows.add("learning_rate", &C::learning_rate, semantic, "", "the highest, after the warm-up", at_least(0));
  rows.add("warmup_steps", &C::warmup_steps, semantic, "steps", "steps in which the learning rate rises",
           at_least(0));
  rows.add("min_lr", &C::min_lr, semantic, "", "what the learning rate falls to, and stays", at_least(0));
  rows.add("decay_steps", &C::decay_steps, semantic, "steps",
           "where its fall ends; 0: at the last step that the run had when it was first started",
           at_least(0));
  rows.add(
      "schedule", &C::schedule, semantic, "",
      "how it goes on after the warm-up: along a cosine, constant and then down a line (warm-up, stable, "
      "decay), or constant",
      any, {"cosine", "wsd", "constant"});
  rows.add("cooldown_steps", &C::cooldown_steps, semantic, "steps",
           "wsd: the steps before train.decay_steps in which it falls; 0: a tenth of them", at_least(0));
  rows.add("weight_decay", &C::weight_decay, semantic, "", "decoupled (AdamW), on matrices only",
           at_least(0));
  rows.add(
      "freeze", &C::freeze, semantic, "",
      "patterns of the names of parameters that are not trained, with commas between: transformer.wte.*, "
      "transformer.h.0.*");
  rows.add("groups", &C::groups, semantic, "",
           "parameters with a learning rate or decay of their own, with commas between: PATTERN lr_factor=K "
           "weight_decay=K, where lr_factor multiplies the learning rate");
  rows.add("beta1", &C::beta1, semantic, "", "AdamW: memory of the mean", unit_interval);
  rows.add("beta2", &C::beta2, semantic, "", "AdamW: memory of the square", unit_interval);
  rows.add("grad_clip", &C::grad_clip, semantic, "",
           "longer gradients are scaled to this norm; 0: not clipped", at_least(0));
}

void add_execution(Rows<TrainConfig> rows) {
  using C = TrainConfig;
  rows.add("seed", &C::seed, semantic, "", "of initial weights, data order and dropout", at_least(0));
  rows.add("device", &C::device, semantic, "", "where to train; auto: a GPU if this process sees one", any,
           {"auto", "cpu", "cuda"});
  rows.add(
      "precision", &C::precision, semantic, "",
      "of activations and products; weights, their gradients and sums stay in fp32. fp16 scales the loss",
      any, {"fp32", "bf16", "fp16"});
  rows.add("amx", &C::amx, semantic, "",
           "products of bf16 by AMX (Intel's Xeons since Sapphire Rapids): faster, with bits of its own");
  rows.add("graph", &C::graph, collective, "",
           "on a GPU: record a step once and replay it (equal bits, less waiting)");
  rows.add("tune_matmul", &C::tune_matmul, semantic, "",
           "on a GPU: time the algorithms of each product and keep the fastest in a file, on which bits then "
           "depend; else the library's first choice");
  rows.add("logit_rows", &C::logit_rows, semantic, "rows",
           "rows of logits (sequences x block_size) that exist at a time; 0: all of a micro-batch",
           at_least(0));
  rows.add("recompute", &C::recompute, collective, "",
           "what is computed again in the backward instead of kept: the attention of each block, each block, "
           "or all but the last of K runs of blocks (equal bits, less memory, up to a third more work)",
           any, {"none", "attention", "block", "segments=K"});
  rows.add("threads", &C::threads, local, "threads", "threads of one rank; 0: its share of the cores",
           at_least(0));
  rows.add("memory_gib", &C::memory_gib, local, "GiB",
           "what a rank may take, for a plan and before the first step; 0: what the machine has",
           at_least(0));
  rows.add("eval_every", &C::eval_every, collective, "steps",
           "steps between validations; 0: only at the end; -1: never", at_least(-1));
  rows.add("patience", &C::patience, collective, "validations",
           "the run ends after so many validations in a row without a better loss; 0: it does not",
           at_least(0));
  rows.add("min_delta", &C::min_delta, collective, "",
           "by how much a loss has to be below the best one to be better in that sense", at_least(0));
  rows.add("sample_every", &C::sample_every, collective, "steps",
           "steps between texts that the model writes; 0: never", at_least(0));
}

void add_dist(Rows<DistConfig> rows) {
  using C = DistConfig;
  rows.add("replicas", &C::replicas, semantic, "replicas",
           "batches that make a step; they fix the bits, not the ranks; 0: one a rank of the first start",
           {.low = 0, .high = 1 << 30});
  rows.add("reduction", &C::reduction, semantic, "",
           "tree: equal bits on any number of ranks; native: the sum of MPI or NCCL", any,
           {"tree", "native"});
  rows.add(
      "shard", &C::shard, collective, "",
      "what ranks cut between them: nothing, the optimizer's states, gradients too, or values as well "
      "(ZeRO 1, 2, 3; equal bits, less memory); or one of PyTorch's names",
      any,
      {"none", "optimizer", "gradients", "full", "NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD"});
  rows.add("group", &C::group, collective, "ranks",
           "neighbours that keep all values between them where dist.shard = full; 0: all ranks, or, with "
           "HYBRID_SHARD, those of a host",
           {.low = 0, .high = 1 << 30});
  rows.add("offload", &C::offload, collective, "",
           "on a GPU: what lies in the host's memory: nothing, the optimizer's states and the fp32 weights, "
           "which are updated there, or all weights, which are brought block by block (equal bits, slower)",
           any, {"none", "optimizer", "all"});
  rows.add("bucket_mib", &C::bucket_mib, collective, "MiB",
           "size of a bucket: gradients that are sent together", above(0));
  rows.add("timeout_s", &C::timeout_s, collective, "seconds",
           "until a rank that does not answer ends the run", above(0));
}

void add_snapshot(Rows<SnapshotConfig> rows) {
  using C = SnapshotConfig;
  rows.add("path", &C::path, collective, "",
           "folder or s3://bucket/prefix of the snapshots; auto: snapshots in log.dir; none: the "
           "trained model is not kept");
  rows.add("every_minutes", &C::every_minutes, collective, "minutes",
           "minutes between snapshots; 0: not by time. There is always one after the last step", at_least(0));
  rows.add("every_steps", &C::every_steps, collective, "steps", "steps between snapshots; 0: not by steps",
           at_least(0));
  rows.add("keep", &C::keep, collective, "snapshots", "newest snapshots to keep, besides the best one",
           at_least(1));
  rows.add(
      "resume", &C::resume, collective, "",
      "auto: an unfinished run in log.dir goes on, a finished one stays, or moves aside for one of other "
      "settings; never: any moves aside; required: only go on",
      any, {"auto", "never", "required"});
}

void add_log(Rows<LogConfig> rows) {
  using C = LogConfig;
  rows.add("dir", &C::dir, local, "", "folder of the results; empty: runs/<name of the configuration>");
  rows.add("every_steps", &C::every_steps, local, "steps",
           "least steps between lines on a console that is not a terminal; a line is due twice a second at "
           "first, every ten seconds later",
           at_least(1));
}

std::string after_dot(const std::string& name) { return name.substr(name.rfind('.') + 1); }

/// The shortest that reads back the same.
std::string number_text(auto value) {
  std::array<char, 32> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end};
}

std::string range_text(const NumberRange& range) {
  const std::string low = concat(range.low_open ? "above " : "at least ", number_text(range.low));
  const std::string high = concat(range.high_open ? "below " : "at most ", number_text(range.high));
  if (std::isinf(range.high)) return low;
  if (std::isinf(range.low)) return high;
  return low + " and " + high;
}

bool holds(const NumberRange& range, double value) {
  return (range.low_open ? value > range.low : value >= range.low) &&
         (range.high_open ? value < range.high : value <= range.high);
}

/// Whether a value is what a choice stands for: itself, or with a number in the place of its K.
bool is_chosen(const std::string& choice, const std::string& value) {
  if (!choice.ends_with("=K")) return value == choice;
  const std::string name = choice.substr(0, choice.size() - 1);
  const char* const end = value.data() + value.size();
  int64_t number = 0;
  if (!value.starts_with(name)) return false;
  const auto [stop, error] = std::from_chars(value.data() + name.size(), end, number);
  return error == std::errc() && stop == end && number >= 1;
}

/// What a key accepts; `what` (place and key) begins every message.
struct Checker {
  const ConfigKey& key;
  std::string what;

  void operator()(const bool* /*any*/) const {}
  void operator()(const auto* number) const {
    const auto value = static_cast<double>(*number);
    require(std::isfinite(value), what, number_text(*number), " is not a finite number");
    require(holds(key.range, value), what, "must be ", range_text(key.range), ", not ", number_text(*number));
  }
  void operator()(const std::string* value) const {
    const bool is_printable = std::all_of(value->begin(), value->end(),
                                          [](unsigned char c) { return c >= ' ' && c != '"' && c != 0x7f; });
    require(is_printable, what, "a double quote or an invisible character in '", *value, "'");
    const auto& choices = key.choices;
    const bool is_choice = std::ranges::any_of(
        choices, [value](const std::string& choice) { return is_chosen(choice, *value); });
    require(choices.empty() || is_choice, what, "expected one of ", joined(choices), ", got '", *value, "'");
  }
};

/// Reads one value.
struct Reader {
  const std::string& value;
  std::string what;

  template <class T>
  void operator()(T* target) const {
    const char* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, *target);
    require(error != std::errc::result_out_of_range, what, value, " is out of range");
    require(error == std::errc() && stop == end, what, "expected ",
            std::is_same_v<T, int64_t> ? "an integer" : "a number", ", got '", value, "'");
  }

  void operator()(bool* target) const {
    const auto is_any = [this](auto... words) { return ((::strcasecmp(value.c_str(), words) == 0) || ...); };
    const bool is_true = is_any("true", "yes", "on", "1");
    require(is_true || is_any("false", "no", "off", "0"), what, "expected true or false, got '", value, "'");
    *target = is_true;
  }

  void operator()(std::string* target) const { *target = value; }
};

struct Writer {
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const auto* number) const { return number_text(*number); }
  std::string operator()(const std::string* value) const { return *value; }
};

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
    add_data({"data", &Config::data, keys});
    add_model({"model", &Config::model, keys});
    add_optimization({"train", &Config::train, keys});
    add_execution({"train", &Config::train, keys});
    add_dist({"dist", &Config::dist, keys});
    add_snapshot({"snapshot", &Config::snapshot, keys});
    add_log({"log", &Config::log, keys});
    return keys;
  }();
  return schema;
}

std::string suggest_config_key(const std::string& name) {
  const ConfigKey* nearest = nullptr;
  size_t least = std::max<size_t>(2, name.size() / 3) + 1;
  for (const ConfigKey& key : config_schema()) {
    // A right name in the wrong section, or in none, is one mistake.
    const size_t unsectioned = edit_distance(after_dot(name), after_dot(key.name)) + 1;
    const size_t distance = std::min(edit_distance(name, key.name), unsectioned);
    if (distance >= least) continue;
    least = distance;
    nearest = &key;
  }
  if (nearest && nearest->name == name) return concat(" (write ", name, "=VALUE)");
  return nearest ? concat(" (did you mean ", nearest->name, "?)") : " (--help lists all keys)";
}

const ConfigKey& find_config_key(const std::string& name, const std::string& origin) {
  for (const ConfigKey& key : config_schema())
    if (key.name == name) return key;
  throw UserError(concat(origin, ": unknown key ", name, suggest_config_key(name)));
}

std::string ConfigKey::type() const {
  if (!choices.empty()) return joined(choices);
  Config some;
  constexpr std::array names = {"true or false", "integer", "number", "text"};
  return names[field(some).index()];
}

std::string ConfigKey::text(const Config& config) const {
  Config copy = config;
  // The path would tie whoever reads it to the folder of the run that wrote it.
  std::string& path = copy.snapshot.path;
  if (path == default_snapshot_path(config)) path = "auto";
  if (path.empty()) path = "none";
  return std::visit(Writer{}, field(copy));
}

void ConfigKey::check(const Config& config) const {
  Config copy = config;
  std::visit(Checker{*this, name + ": "}, field(copy));
}

void ConfigKey::assign(Config& config, const std::string& value, const std::string& origin) const {
  const std::string what = concat(origin, ": ", name, ": ");
  std::visit(Reader{value, what}, field(config));
  std::visit(Checker{*this, what}, field(config));
}

}  // namespace lockstep
