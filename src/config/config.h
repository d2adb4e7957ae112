// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

// What each field means, its range and its unit: the table in config_schema.cpp, which --help prints.

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
};

struct LogConfig {
  std::string dir;
  int64_t every_steps = 1;
};

/// Everything a training run can be told. load_config() makes a checked one.
struct Config {
  DataConfig data;
  ModelConfig model;
  TrainConfig train;
  DistConfig dist;
  SnapshotConfig snapshot;
  LogConfig log;
  /// Keys that nobody has set: where a run goes on they may have its values. A program that fills in the
  /// fields has set them all.
  std::set<std::string> unset = {};
  bool is_settled = false;  ///< as start_world() leaves it: nothing is open, and all ranks have the same
};

/// A value that somebody wrote down, and where.
struct Setting {
  std::string key;  ///< with its section: train.steps
  std::string value;
  std::string origin = "command line";
};

/// A command line taken apart. A program removes from `other` what only it understands, and may add to
/// `overrides` (later ones win), before it calls load_config().
struct Arguments {
  std::string program;             ///< the executable's file name
  std::string config_file;         ///< of --config; empty if absent
  std::vector<Setting> overrides;  ///< section.key=value, --section.key=value, --section.key value; - means _
  std::vector<std::string> other;  ///< the rest, in order
  bool help = false;               ///< --help or -h
  bool version = false;            ///< --version
  bool print_config = false;       ///< --print-config
  bool plan = false;               ///< --plan
};

/// Throws UserError where --config or --section.key lacks its value.
Arguments split_arguments(int argc, const char* const* argv);

/// `defaults` < preset < file < overrides, checked, with device and log.dir settled. Throws UserError that
/// names the key and its place for anything unknown, mistyped or out of range, and for whatever is left in
/// `other`.
Config load_config(const Arguments& arguments, const Config& defaults = {});

/// Reads what to_ini() wrote (or any INI text); `name` stands in messages for the file.
Config config_from_ini(const std::string& text, const std::string& name);

/// The same for what another version of the program may have written: keys and values that this one does not
/// know are passed over.
Config config_of_earlier_run(const std::string& text, const std::string& name);

/// What a program has filled in, checked and settled as load_config() does it.
Config validated(Config config, const std::string& name = "run");

/// A configuration with other values, checked and with its device settled. Throws UserError as load_config()
/// does.
Config with_settings(Config config, const std::vector<Setting>& settings);

/// What a key is set to, as to_ini() writes it. Throws UserError if there is no such key.
std::string value_of(const Config& config, const std::string& key);

/// Gives what fixes the bits and was not set the values of `there`. Returns "key = value" of those that
/// change.
std::vector<std::string> adopt_unset(Config& config, const Config& there);

/// The K of train.recompute = segments=K; 0 where it is something else.
int64_t recompute_segments(const Config& config);

/// Where snapshots are kept if nobody says otherwise: in log.dir.
std::string default_snapshot_path(const Config& config);

/// The INI text of all keys, readable again with the same result, also in another log.dir.
std::string to_ini(const Config& config);

/// Settles train.device: auto becomes cuda where this process sees a GPU. Throws UserError saying why, if a
/// GPU is asked for that is not there.
void settle_device(Config& config);

/// Settles dist.replicas: 0 becomes `ranks`. Throws UserError if there are fewer replicas than ranks.
void settle_replicas(Config& config, int64_t ranks);

/// What --help prints: usage, then every key with type, default, unit and meaning.
std::string config_help(const std::string& program, const Config& defaults = {});

/// Who has to agree on a key.
enum class KeyClass {
  semantic,    ///< fixes the bits of the run: one that goes on has the value of its snapshot, or is refused
  collective,  ///< may change between runs, but the ranks of one run must agree
  local,       ///< each rank for itself
};

/// One key with its value as to_ini() writes it.
struct ConfigValue {
  std::string key;
  std::string value;
  KeyClass key_class = KeyClass::semantic;
};

/// All keys in a fixed order, for fingerprints and snapshots. Call it after settle_replicas().
std::vector<ConfigValue> config_values(const Config& config);

}  // namespace lockstep
