// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "config/config_file.h"
#include "config/config_schema.h"
#include "core/error.h"
#include "core/file.h"
#include "core/gpu.h"
#include "core/text.h"

namespace lockstep {
namespace {

/// The settings of one source: a file or the command line.
using Layer = std::vector<Setting>;

void apply_preset(Config& config) {
  for (const ModelPreset& preset : model_presets()) {
    if (preset.name != config.model.preset) continue;
    config.model.n_layer = preset.n_layer;
    config.model.n_head = preset.n_head;
    config.model.n_embd = preset.n_embd;
  }
}

void assign(Config& config, const Setting& setting) {
  find_config_key(setting.key, setting.origin).assign(config, setting.value, setting.origin);
}

bool says_how_long(const Layer& layer) {
  return std::any_of(layer.begin(), layer.end(), [](const Setting& setting) {
    return (setting.key == "train.steps" || setting.key == "train.epochs") && setting.value != "0";
  });
}

/// Applies the preset first, then every setting, the strongest layer last. Explicit sizes override it.
Config assemble(const std::vector<Layer>& layers, const Config& defaults) {
  Config config = defaults;
  for (const ConfigKey& key : config_schema()) config.unset.insert(key.name);
  for (const Layer& layer : layers)
    for (const Setting& setting : layer)
      if (setting.key == "model.preset") assign(config, setting);
  apply_preset(config);
  for (const Layer& layer : layers) {
    // Steps on the command line override epochs in the file, and epochs there override steps.
    if (says_how_long(layer)) config.train.steps = config.train.epochs = 0;
    for (const Setting& setting : layer) {
      assign(config, setting);
      if (setting.key != "train.device" || setting.value != "auto") config.unset.erase(setting.key);
    }
  }
  if (!config.model.preset.empty())
    for (const char* key : {"model.n_layer", "model.n_head", "model.n_embd"}) config.unset.erase(key);
  return config;
}

void check_together(const Config& config) {
  const TrainConfig& train = config.train;
  const ModelConfig& model = config.model;
  require(train.steps == 0 || train.epochs == 0, "train.steps = ", train.steps,
          " and train.epochs = ", train.epochs, " both set the length of the run; set one of them to 0");
  require(train.steps > 0 || train.epochs > 0,
          "neither train.steps nor train.epochs is set; set one of them");
  require(model.n_embd % model.n_head == 0, "model.n_embd = ", model.n_embd,
          " is not a multiple of model.n_head = ", model.n_head, "; change one of them");
  // The sizes of model.from are not known yet.
  const bool is_sized = model.from.empty() || !config.unset.contains("model.n_layer");
  require(!is_sized || recompute_segments(config) <= model.n_layer,
          "train.recompute = ", config.train.recompute,
          " asks for more segments than model.n_layer = ", model.n_layer,
          " blocks; choose at most one segment per block, or train.recompute = block");
  require(model.n_positions == 0 || config.data.block_size <= model.n_positions,
          "data.block_size = ", config.data.block_size,
          " is more than model.n_positions = ", model.n_positions,
          "; lower data.block_size or raise model.n_positions");
  require(train.min_lr <= train.learning_rate, "train.min_lr = ", train.min_lr,
          " is above train.learning_rate = ", train.learning_rate,
          "; lower train.min_lr or raise train.learning_rate");
  require(train.steps == 0 || train.decay_steps > 0 || train.warmup_steps <= train.steps,
          "train.warmup_steps = ", train.warmup_steps, " is more than train.steps = ", train.steps,
          ", the length of the run; lower train.warmup_steps");
  require(train.decay_steps == 0 || train.warmup_steps <= train.decay_steps,
          "train.warmup_steps = ", train.warmup_steps,
          " is more than train.decay_steps = ", train.decay_steps, "; lower train.warmup_steps");
  require(train.cooldown_steps == 0 || train.schedule == "wsd",
          "train.cooldown_steps = ", train.cooldown_steps, " needs train.schedule = wsd, not ",
          train.schedule);
  require(train.decay_steps == 0 || train.warmup_steps + train.cooldown_steps <= train.decay_steps,
          "train.warmup_steps = ", train.warmup_steps, " and train.cooldown_steps = ", train.cooldown_steps,
          " are together more than train.decay_steps = ", train.decay_steps, "; lower one of them");
  require(train.batch_size % train.accumulate == 0, "train.batch_size = ", train.batch_size,
          " is not a multiple of train.accumulate = ", train.accumulate, "; change one of them");
  require(train.patience == 0 || train.eval_every > 0, "train.patience = ", train.patience,
          " needs validations during the run; set train.eval_every above 0, not ", train.eval_every);
  require(!config.data.dataset.empty(),
          "data.dataset is empty; set the name of a data set or the path of a text file");
  require(!config.data.tokenizer.empty(),
          "data.tokenizer is empty; set auto, char or the path of a tokenizer");
  require(config.snapshot.resume != "required" || !config.snapshot.path.empty(),
          "snapshot.resume = required needs snapshots, but snapshot.path = none; set snapshot.path");
}

/// Resolves the words auto and none. A folder of that name is written ./auto or ./none.
void settle_folders(Config& config, const std::string& name) {
  if (config.log.dir.empty()) config.log.dir = "runs/" + name;
  std::string& path = config.snapshot.path;
  if (path == "auto") path = default_snapshot_path(config);
  if (path == "none") path.clear();
}

/// Returns the name with _ instead of -; options accept both.
std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// Returns true for "section.key" in lower case, the spelling of every key.
bool is_key_like(const std::string& text) {
  const size_t dot = text.find('.');
  const bool has_both_parts = dot != std::string::npos && dot > 0 && dot + 1 < text.size();
  return has_both_parts &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") == std::string::npos;
}

/// Returns the option that `name` without dashes resembles: --config for "config-name", "confg", "c"; or "".
std::string nearest_option(const std::string& name) {
  for (const std::string option : {"config", "help", "version", "print-config", "plan", "fresh"}) {
    const bool is_part = name.size() == 1 ? option.starts_with(name) : name.starts_with(option);
    if (is_part || slips_between(name, option)) return "--" + option;
  }
  return "";
}

/// Returns a suggestion for the first argument that is not understood.
std::string suggestion(const Arguments& arguments) {
  const std::string& argument = arguments.other.front();
  if (is_config_file(argument)) return concat(" (did you mean --config ", shell_quoted(argument), "?)");
  std::string name = argument.substr(0, argument.find('='));
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  const std::string option = argument.starts_with('-') ? nearest_option(name) : "";
  if (option.empty()) return suggest_config_key(underscored(name));
  std::string value;
  if (option == "--config" && arguments.other.size() > 1) value = " " + shell_quoted(arguments.other[1]);
  if (option == "--config" && argument.find('=') != std::string::npos)
    value = " " + shell_quoted(argument.substr(argument.find('=') + 1));
  return concat(" (did you mean ", option, value, "?)");
}

/// Returns the last name of a path or an address, without its ending, as a part of a folder's name.
std::string short_name(const std::string& path) {
  const std::string address = path.substr(0, path.find_last_not_of('/') + 1);
  std::string name = std::filesystem::path(address.substr(0, address.find('?'))).stem().string();
  for (char& c : name)
    if (shell_quoted(std::string(1, c)).size() > 1) c = '_';
  constexpr size_t most_bytes = 60;  // file systems limit a name to 255
  return name.substr(0, most_bytes);
}

/// Returns the name of a run: that of its file. Without a file, runs of other models or data have other
/// names, so that a trial does not move a run aside that was given another model or text.
std::string run_name(const Arguments& arguments, const Config& config) {
  if (!arguments.config_file.empty())
    return std::filesystem::path(find_config_file(arguments.config_file)).stem().string();
  std::string name = arguments.program;
  if (!config.model.from.empty()) name += "-" + short_name(config.model.from);
  if (!config.unset.contains("data.dataset")) name += "-" + short_name(config.data.dataset);
  return name;
}

std::string section_of(const ConfigKey& key) { return key.name.substr(0, key.name.find('.')); }
std::string name_of(const ConfigKey& key) { return key.name.substr(key.name.find('.') + 1); }

/// Adds quotes where the parser would otherwise see a comment or drop blanks.
std::string quoted(const std::string& text) {
  const bool is_plain = text.empty() || (text.find_first_of("#;") == std::string::npos &&
                                         text.front() != ' ' && text.back() != ' ');
  return is_plain ? text : '"' + text + '"';
}

}  // namespace

Config validated(Config config, const std::string& name) {
  for (const ConfigKey& key : config_schema()) key.check(config);
  settle_folders(config, name);
  find_config_key("log.dir", name).check(config);  // the name of a file may be any bytes
  check_together(config);
  return config;
}

int64_t recompute_segments(const Config& config) {
  const std::string& value = config.train.recompute;
  const size_t equals = value.find('=');
  return equals == std::string::npos ? 0 : std::stoll(value.substr(equals + 1));
}

Config with_settings(Config config, const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) assign(config, setting);
  config = validated(std::move(config));
  settle_device(config);
  return config;
}

std::string value_of(const Config& config, const std::string& key) {
  return find_config_key(key, "value_of").text(config);
}

std::string default_snapshot_path(const Config& config) {
  return (std::filesystem::path(config.log.dir) / "snapshots").string();
}

Arguments split_arguments(int argc, const char* const* argv) {
  Arguments arguments;
  if (argc > 0) arguments.program = std::filesystem::path(argv[0]).filename().string();
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    const bool is_option = argument.starts_with("--");
    const size_t equals = argument.find('=');
    const std::string name = underscored(argument.substr(0, equals).substr(is_option ? 2 : 0));
    const bool takes_value = is_option && (name == "config" || is_key_like(name));
    std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (takes_value && equals == std::string::npos) {
      const bool has_value = i + 1 < argc && !std::string(argv[i + 1]).starts_with("--");
      require(has_value, "command line: ", argument, " lacks its value");
      value = argv[++i];
    }
    if (argument == "--help" || argument == "-h") {
      arguments.help = true;
    } else if (argument == "--fresh") {
      arguments.overrides.push_back({"snapshot.resume", "never"});
    } else if (argument == "--version") {
      arguments.version = true;
    } else if (is_option && equals == std::string::npos && name == "print_config") {
      arguments.print_config = true;
    } else if (argument == "--plan") {
      arguments.plan = true;
    } else if (is_option && name == "config") {
      require(arguments.config_file.empty(), "command line: --config is given twice; keep one of them");
      require(!value.empty(), "command line: --config lacks its value");
      arguments.config_file = expanded_path(value, "--config: ");
    } else if (takes_value || (equals != std::string::npos && is_key_like(name))) {
      arguments.overrides.push_back({name, value});
    } else {
      arguments.other.push_back(argument);
    }
  }
  return arguments;
}

Config load_config(const Arguments& arguments, const Config& defaults) {
  if (!arguments.other.empty())
    throw UserError(
        concat("command line: '", arguments.other.front(), "' is not understood", suggestion(arguments)));
  std::vector<Layer> layers;
  if (!arguments.config_file.empty()) {
    const std::string path = find_config_file(arguments.config_file);
    layers.push_back(parse_ini(read_named_file(path, "--config"), path));
  }
  layers.push_back(arguments.overrides);
  Config config = assemble(layers, defaults);
  const std::string name = run_name(arguments, config);
  config = validated(std::move(config), name);
  settle_device(config);
  return config;
}

Config config_of_earlier_run(const std::string& text, const std::string& name) {
  Layer understood;
  Config ignored;
  for (const Setting& setting : parse_ini(text, name)) {
    const ConfigKey* key = known_config_key(setting.key);
    if (key == nullptr) continue;
    try {
      key->assign(ignored, setting.value, setting.origin);
      understood.push_back(setting);
    } catch (const UserError&) {
      continue;
    }
  }
  Config config = assemble({understood}, {});
  settle_folders(config, std::filesystem::path(name).stem().string());
  return config;
}

std::vector<std::string> adopt_unset(Config& config, const Config& there) {
  std::vector<std::string> adopted;
  for (const ConfigKey& key : config_schema()) {
    const bool is_open =
        config.unset.contains(key.name) || (key.name == "dist.replicas" && config.dist.replicas == 0);
    // train.decay_steps is resolved later, from the run that is resumed.
    const bool is_wanted = (key.key_class == KeyClass::semantic && key.name != "train.decay_steps") ||
                           key.name == "data.dataset" || key.name == "data.tokenizer" ||
                           key.name == "model.from";
    const std::string value = key.text(there);
    if (!is_open || !is_wanted || value == key.text(config)) continue;
    key.assign(config, value, "the earlier run");
    adopted.push_back(concat(key.name, " = ", value));
  }
  return adopted;
}

void settle_device(Config& config) {
  std::string& device = config.train.device;
  const bool has_gpu = device != "cpu" && count_gpus() > 0;
  require(device != "cuda" || has_gpu, "train.device = cuda: ", why_no_gpu(), "; or set auto or cpu");
  if (device == "auto") device = has_gpu ? "cuda" : "cpu";
  const int64_t head = config.model.n_embd / config.model.n_head;
  require(device == "cpu" || (head <= 128 && (config.train.precision == "fp32" || head % 8 == 0)),
          "model.n_embd / model.n_head = ", head, " channels per head; a GPU needs at most 128 and, in ",
          config.train.precision, ", a multiple of 8; change them, or set train.device = cpu");
}

void settle_replicas(Config& config, int64_t ranks) {
  int64_t& replicas = config.dist.replicas;
  if (replicas == 0) replicas = ranks;
  require(ranks <= replicas, "dist.replicas = ", replicas, " is below the number of ranks, ", ranks,
          "; start at most ", replicas, " ranks, or set dist.replicas = ", ranks, " (this gives other bits)");
}

std::string to_ini(const Config& config) {
  std::ostringstream out;
  std::string section;
  for (const ConfigKey& key : config_schema()) {
    if (section_of(key) != section) {
      out << (section.empty() ? "[" : "\n[") << section_of(key) << "]\n";
      section = section_of(key);
    }
    const std::string value = quoted(key.text(config));
    out << name_of(key) << (value.empty() ? " =" : " = ") << value << "\n";
  }
  return out.str();
}

}  // namespace lockstep
