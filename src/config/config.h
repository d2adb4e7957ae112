// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

// The table in config_schema.cpp has the meaning, range and unit of each field; --help prints it.

struct DataConfig {
  std::string dataset = "shakespeare";
  std::string tokenizer = "auto";
  int64_t block_size = 64;
  double train_split = 0.9;
  std::string loss_on = "answer";
  bool packing = true;
};

struct ModelConfig {
  std::string from;
  std::string preset;
  int64_t n_layer = 4;
  int64_t n_head = 4;
  int64_t n_embd = 128;
  int64_t vocab_size = 0;
  int64_t vocab_multiple = 0;
  int64_t n_positions = 0;
  double dropout = 0.0;
  bool bias = true;
  bool tie_weights = true;
  std::string activation = "gelu_tanh";
};

struct TrainConfig {
  int64_t steps = 0;
  int64_t epochs = 0;
  int64_t batch_size = 8;
  int64_t accumulate = 1;
  double learning_rate = 1e-3;
  int64_t warmup_steps = 0;
  double min_lr = 0.0;
  int64_t decay_steps = 0;
  std::string schedule = "cosine";
  int64_t cooldown_steps = 0;
  double weight_decay = 0.1;
  std::string freeze;
  std::string groups;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double grad_clip = 1.0;
  int64_t seed = 1337;
  std::string device = "auto";
  std::string precision = "fp32";
  bool amx = false;
  bool graph = true;
  bool tune_matmul = false;
  int64_t logit_rows = 0;
  std::string recompute = "none";
  int64_t threads = 0;
  double memory_gib = 0.0;
  int64_t eval_every = 250;
  int64_t patience = 0;
  double min_delta = 0.0;
  int64_t sample_every = 0;
};

struct DistConfig {
  int64_t replicas = 0;
  std::string reduction = "tree";
  std::string shard = "none";
  int64_t group = 0;
  std::string offload = "none";
  double bucket_mib = 25.0;
  double timeout_s = 300.0;
};

struct SnapshotConfig {
  std::string path = "auto";
  double every_minutes = 10.0;
  int64_t every_steps = 0;
  int64_t keep = 1;
  std::string resume = "auto";
  double wait_minutes = 0.0;
};

struct LogConfig {
  std::string dir;
  int64_t every_steps = 1;
};

/// The settings of a training run. load_config() makes a validated one.
struct Config {
  DataConfig data;
  ModelConfig model;
  TrainConfig train;
  DistConfig dist;
  SnapshotConfig snapshot;
  LogConfig log;
  /// Keys that no file, command line or preset has set. A resumed run may give them the values of its first
  /// start. Empty where a program fills in the fields itself.
  std::set<std::string> unset = {};
  bool is_settled = false;  ///< by start_world(): no value is open, and all ranks have the same values
};

/// A key with a value, and the file and line (or command line) that set it.
struct Setting {
  std::string key;  ///< with its section: train.steps
  std::string value;
  std::string origin = "command line";
};

/// The parts of a command line. Before load_config(), a program removes its own arguments from `other`. It
/// may also add to `overrides`, where later ones win.
struct Arguments {
  std::string program;             ///< the executable's file name
  std::string config_file;         ///< of --config; empty if absent
  std::vector<Setting> overrides;  ///< section.key=value, --section.key=value, --section.key value; - means _
  std::vector<std::string> other;  ///< all other arguments, in order
  bool help = false;               ///< --help or -h
  bool version = false;            ///< --version
  bool print_config = false;       ///< --print-config
  bool plan = false;               ///< --plan
};

/// Splits the arguments of main(). Throws UserError if --config or --section.key has no value.
Arguments split_arguments(int argc, const char* const* argv);

/// Returns the settings, validated, with device and log.dir resolved. Overrides win over the file, the file
/// over the preset, the preset over `defaults`. Throws UserError that names key and place for an unknown key,
/// a value of another type or out of range, and any argument left in `other`.
Config load_config(const Arguments& arguments, const Config& defaults = {});

/// Reads an INI text of any version of the program. Unknown keys and values are skipped.
Config config_of_earlier_run(const std::string& text, const std::string& name);

/// Returns settings that a program filled in, validated and resolved as load_config() does it.
Config validated(Config config, const std::string& name = "run");

/// Returns a copy with these settings, validated and with its device resolved. Throws as load_config() does.
Config with_settings(Config config, const std::vector<Setting>& settings);

/// Returns the value of a key, as to_ini() writes it. Throws UserError if the key does not exist.
std::string value_of(const Config& config, const std::string& key);

/// Copies the values of keys that fix the bits and are unset here. Returns "key = value" for each change.
std::vector<std::string> adopt_unset(Config& config, const Config& there);

/// Returns the K of train.recompute = segments=K; 0 for any other value.
int64_t recompute_segments(const Config& config);

/// Returns the folder of snapshots for snapshot.path = auto: snapshots/ in log.dir.
std::string default_snapshot_path(const Config& config);

/// Returns the INI text of all keys. Reading it gives the same settings, also with another log.dir.
std::string to_ini(const Config& config);

/// Resolves train.device = auto: cuda if this process sees a GPU, else cpu. Throws UserError with the reason
/// if cuda is set and no GPU can be used, or if a GPU cannot compute attention heads of this size.
void settle_device(Config& config);

/// Resolves dist.replicas = 0 to `ranks`. Throws UserError if there are fewer replicas than ranks.
void settle_replicas(Config& config, int64_t ranks);

/// Returns the text of --help: usage, then each key with type, default, unit and meaning, in unwrapped lines.
std::string config_help(const std::string& program, const Config& defaults = {});

}  // namespace lockstep
