// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "config/config_schema.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "core/utf8.h"

namespace lockstep {
namespace {

/// Returns the shortest text that reads back as the same number.
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

/// Whether `choice` allows `value`. A choice "name=K" allows any number from 1 instead of its K.
bool is_chosen(const std::string& choice, const std::string& value) {
  if (!choice.ends_with("=K")) return value == choice;
  const std::string name = choice.substr(0, choice.size() - 1);
  if (!value.starts_with(name)) return false;
  const auto number = number_in<int64_t>(std::string_view(value).substr(name.size()));
  return number && *number >= 1;
}

/// Checks a value of a key. Every message begins with `what`: the place and the key.
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
    require(is_printable, what, "the value '", shortened(*value),
            "' contains a double quote or an invisible character");
    // Snapshots store all values in JSON.
    require(is_utf8(*value), what, "the value '", shortened(*value),
            "' is not UTF-8; rename the file or folder");
    const auto& choices = key.choices;
    const bool is_choice = std::ranges::any_of(
        choices, [value](const std::string& choice) { return is_chosen(choice, *value); });
    require(choices.empty() || is_choice, what, "expected one of ", joined(choices), ", got '",
            shortened(*value), "'");
  }
};

/// Reads a value from text. Every message begins with `what`: the place and the key.
struct Reader {
  const std::string& value;
  std::string what;

  template <class T>
  void operator()(T* target) const {
    const std::string_view digits = without_plus(value);
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, *target);
    require(error != std::errc::result_out_of_range, what, shortened(value), " is out of range");
    require(error == std::errc() && stop == end, what, "expected ",
            std::is_same_v<T, int64_t> ? "an integer" : "a number", ", got '", shortened(value), "'");
  }

  void operator()(bool* target) const {
    const auto is_any = [this](auto... words) { return ((::strcasecmp(value.c_str(), words) == 0) || ...); };
    const bool is_true = is_any("true", "yes", "on", "1");
    require(is_true || is_any("false", "no", "off", "0"), what, "expected true or false, got '",
            shortened(value), "'");
    *target = is_true;
  }

  void operator()(std::string* target) const { *target = value; }
};

struct Writer {
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const auto* number) const { return number_text(*number); }
  std::string operator()(const std::string* value) const { return *value; }
};

/// Settings, each with the names that users of PyTorch, nanoGPT and Hugging Face's Trainer type instead.
const std::map<std::string, std::set<std::string>>& names_elsewhere() {
  static const std::map<std::string, std::set<std::string>> names = {
      {"--fresh", {"overwrite_output_dir"}},
      {"data.block_size",
       {"block", "context_length", "max_length", "max_seq_length", "seq_len", "seq_length",
        "sequence_length"}},
      {"data.dataset", {"corpus", "data", "data_dir", "dataset_name"}},
      {"data.tokenizer", {"tokenizer_name"}},
      {"data.train_split", {"val_split", "validation", "validation_split"}},
      {"dist.bucket_mib", {"bucket_cap_mb"}},
      {"dist.offload", {"cpu_offload", "optimizer_offload"}},
      {"dist.shard", {"sharding_strategy", "zero_stage"}},
      {"log.dir", {"out_dir", "output", "output_dir"}},
      {"log.every_steps", {"log_interval", "logging_steps"}},
      {"model.from", {"init_from", "model_name_or_path", "pretrained"}},
      {"model.n_embd", {"hidden_size"}},
      {"model.n_head", {"num_attention_heads", "num_heads"}},
      {"model.n_layer", {"num_hidden_layers", "num_layers"}},
      {"model.preset", {"model_size", "model_type"}},
      {"model.preset or model.from", {"model"}},
      {"snapshot.every_steps", {"save_every", "save_interval", "save_steps"}},
      {"snapshot.keep", {"save_total_limit"}},
      {"snapshot.path", {"checkpoint_dir"}},
      {"snapshot.resume", {"resume_from_checkpoint"}},
      {"train.accumulate", {"grad_accumulation", "gradient_accumulation_steps"}},
      {"train.batch_size", {"per_device_train_batch_size", "train_batch_size"}},
      {"train.beta1", {"adam_beta1"}},
      {"train.beta2", {"adam_beta2"}},
      {"train.decay_steps", {"lr_decay_iters"}},
      {"train.epochs", {"max_epochs", "num_epochs", "num_train_epochs"}},
      {"train.eval_every", {"eval", "eval_interval", "eval_steps"}},
      {"train.grad_clip", {"clip_grad", "clip_grad_norm", "gradient_clip", "max_grad_norm"}},
      {"train.learning_rate", {"lr"}},
      {"train.patience", {"early_stopping_patience"}},
      {"train.precision", {"amp", "dtype", "mixed_precision"}},
      {"train.precision=bf16", {"bf16"}},
      {"train.precision=fp16", {"fp16"}},
      {"train.recompute", {"gradient_checkpointing"}},
      {"train.schedule", {"decay_lr", "lr_scheduler", "lr_scheduler_type"}},
      {"train.steps", {"iterations", "iters", "max_iters", "max_steps", "num_steps", "total_steps"}},
      {"train.warmup_steps", {"warmup", "warmup_iters"}},
      {"train.weight_decay", {"wd"}},
  };
  return names;
}

std::string after_dot(const std::string& name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

std::string ConfigKey::type() const {
  if (!choices.empty()) return joined(choices);
  Config some;
  constexpr std::array names = {"true or false", "integer", "number", "text"};
  return names[field(some).index()];
}

std::string ConfigKey::text(const Config& config) const {
  if (name == "snapshot.path") {
    // The default path is written as auto, so that the file can be used with another log.dir.
    const std::string& path = config.snapshot.path;
    return path == default_snapshot_path(config) ? "auto" : path.empty() ? "none" : path;
  }
  return std::visit(Writer{}, field_of(config));
}

void ConfigKey::check(const Config& config) const {
  std::visit(Checker{*this, name + ": "}, field_of(config));
}

void ConfigKey::assign(Config& config, const std::string& value, const std::string& origin) const {
  const std::string what = concat(origin, ": ", name, ": ");
  std::visit(Reader{is_path ? expanded_path(value, what) : value, what}, field(config));
  std::visit(Checker{*this, what}, field(config));
}

/// Returns the field to read it. A copy of the configuration for each key would take longer than all else.
ConfigField ConfigKey::field_of(const Config& config) const { return field(const_cast<Config&>(config)); }

std::string suggest_config_key(const std::string& name) {
  const std::string last = after_dot(name);
  std::optional<size_t> least;
  std::string nearest;
  for (const ConfigKey& key : config_schema()) {
    if (key.name == name) return concat(" (write ", name, "=VALUE)");
    const std::optional<size_t> slips = slips_between(last, after_dot(key.name));
    // Two sections may have a key of this name: the section that was written wins.
    const bool is_in_section = name.starts_with(key.name.substr(0, key.name.find('.') + 1));
    if (!slips || (least && (*slips > *least || (*slips == *least && !is_in_section)))) continue;
    least = slips;
    nearest = key.name;
  }
  for (const auto& [key, names] : names_elsewhere())
    if (least != 0 && names.contains(last)) nearest = key;
  return nearest.empty() ? " (--help lists all keys)" : concat(" (did you mean ", nearest, "?)");
}

const ConfigKey* known_config_key(const std::string& name) {
  const auto found = std::ranges::find(config_schema(), name, &ConfigKey::name);
  return found == config_schema().end() ? nullptr : &*found;
}

const ConfigKey& find_config_key(const std::string& name, const std::string& origin) {
  if (const ConfigKey* key = known_config_key(name)) return *key;
  throw UserError(concat(origin, ": unknown key ", shortened(name), suggest_config_key(name)));
}

}  // namespace lockstep
