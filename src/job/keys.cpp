// SPDX-License-Identifier: Apache-2.0
#include "lockstep/job/keys.h"

#include "lockstep/core/error.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/text.h"
#include "lockstep/dist/keys.h"
#include "lockstep/kernels/matmul_plans.h"
#include "lockstep/language/keys.h"
#include "lockstep/models/keys.h"
#include "lockstep/parameters/keys.h"
#include "lockstep/snapshot/keys.h"

namespace lockstep {
namespace {

constexpr auto semantic = KeyClass::semantic;
constexpr auto collective = KeyClass::collective;
constexpr auto local = KeyClass::local;

const std::string own_model_usage =
    " [--config FILE] [section.key=value ...] [OPTIONS]\n"
    "\n"
    "  --config FILE      an INI file of keys\n"
    "  section.key=value  sets a key; --section.key=value and --section.key value do the same. The command "
    "line overrides the file\n"
    "  --print-config     print all keys with their final values as an INI file. Trains nothing\n"
    "  --fresh            start a new run; a run in log.dir is moved aside (snapshot.resume=never)\n"
    "  --version          print the version and how the program was built\n"
    "  --help             print this text\n";

constexpr const char* usage =
    " [--config FILE] [section.key=value ...] [OPTIONS]\n"
    "\n"
    "  --config FILE      a path, or the name of a shipped configuration: --config quickstart\n"
    "  section.key=value  sets a key; --section.key=value and --section.key value do the same. The command "
    "line overrides the file, and both override model.preset\n"
    "  --plan             print the memory that a rank needs, whether it fits, the largest batch that fits, "
    "and the cheapest change that makes it fit. Allocates and trains nothing. Under mpirun it plans for that "
    "number of ranks. Exit code 0 even if the run does not fit; such a run itself is refused with exit code "
    "2\n"
    "  --print-config     print all keys with their final values as an INI file. Trains nothing\n"
    "  --fresh            start a new run; a run in log.dir is moved aside (snapshot.resume=never)\n"
    "  --version          print the version and how the program was built\n"
    "  --help             print this text\n"
    "\n"
    "Keys, with type and default. The ten keys marked * matter first.\n";

KeyRows<LengthOptions> length_rows() {
  using O = LengthOptions;
  KeyRows<O> rows("train", "Length and batch");
  // A run may be given more steps: its schedule depends on train.decay_steps, not on its length.
  rows.add("steps", &O::steps, collective, at_least(0), "steps", "length of the run; 0: use train.epochs")
      .first()
      .alternative("length")
      .also_called({"iterations", "iters", "max_iters", "max_steps", "num_steps", "total_steps"});
  rows.add("epochs", &O::epochs, collective, at_least(0), "epochs",
           "length of the run in passes over the data (for a text: over its tokens); 0: use train.steps")
      .alternative("length")
      .also_called({"max_epochs", "num_epochs", "num_train_epochs"});
  return rows;
}

KeyRows<BatchOptions> batch_rows() {
  using O = BatchOptions;
  KeyRows<O> rows("train", "Length and batch");
  rows.add("batch_size", &O::batch_size, semantic, at_least(1), "sequences",
           "sequences per replica and step; the global batch is dist.replicas times as large")
      .first()
      .also_called({"per_device_train_batch_size", "train_batch_size"});
  rows.add("accumulate", &O::accumulate, semantic, between(1, 1 << 30), "micro-batches",
           "micro-batches per replica and step (gradient accumulation); batch_size is a multiple of it")
      .also_called({"grad_accumulation", "gradient_accumulation_steps"});
  return rows;
}

KeyWord<DType> precision_word(DType precision) { return {precision_name(precision), precision}; }

void add_arithmetic(KeyRows<ComputeOptions>& rows) {
  using O = ComputeOptions;
  rows.begin("Seed, device and precision");
  rows.add("seed", &O::seed, semantic, at_least(0), "", "seed of initial weights, data order and dropout");
  rows.add("device", &O::device,
           {{"auto", std::nullopt}, {name(Device::cpu), Device::cpu}, {name(Device::cuda), Device::cuda}},
           semantic, "auto: a GPU if this process sees one, else the CPU")
      .open_at("auto");
  rows.add("precision", &O::precision,
           {precision_word(DType::f32), precision_word(DType::bf16), precision_word(DType::f16)}, semantic,
           "dtype of activations and matmuls. Weights, their gradients and sums stay fp32; fp16 scales the "
           "loss")
      .first()
      .also_called({"amp", "dtype", "mixed_precision"});
  rows.add(
      "amx", &O::amx, semantic,
      "bf16 matmuls use AMX (Intel Xeon since Sapphire Rapids): faster, but the results have other bits");
  rows.add("graph", &O::graph, collective,
           "GPU only: record a step once as a CUDA graph and replay it (same bits, less waiting)");
  rows.add("tune_matmul", &O::tune_matmul, semantic,
           "GPU only: time the library's algorithms for each matmul and keep the fastest in a file, on which "
           "the bits then depend; false: take the first choice of the library");
}

void add_memory(KeyRows<ComputeOptions>& rows) {
  using O = ComputeOptions;
  using What = Recompute::What;
  const KeyWord<Recompute> segments(
      "segments=K",
      [](int64_t count) {
        return Recompute{What::segments, count};
      },
      [](const Recompute& value) { return value.segments; });
  rows.begin("Memory and threads");
  rows.add("logit_rows", &O::logit_rows, semantic, at_least(0), "rows",
           "rows of logits (sequences x block_size) in memory at a time; 0: all of a micro-batch");
  rows.add("recompute", &O::recompute,
           {{"none", Recompute{}},
            {"attention", Recompute{What::attention}},
            {"block", Recompute{What::block}},
            segments},
           collective,
           "activation checkpointing: compute again in the backward pass the attention of each block, each "
           "block, or all but the last of K segments of blocks (same bits, less memory, up to a third more "
           "work)")
      .also_called({"gradient_checkpointing"});
  rows.add("threads", &O::threads, local, between(0, 1 << 20), "threads",
           "CPU threads per rank; 0: this rank's share of the cores");
  rows.add("memory_gib", &O::memory_gib, local, at_least(0), "GiB",
           "memory limit of a rank, checked by --plan and before the first step; 0: the machine's memory");
}

KeyRows<ValidationOptions> validation_rows() {
  using O = ValidationOptions;
  KeyRows<O> rows("train", "Validation");
  rows.add("eval_every", &O::eval_every, collective, at_least(-1), "steps",
           "steps between validations; 0: only after the last step; -1: never")
      .also_called({"eval", "eval_interval", "eval_steps"});
  rows.add("patience", &O::patience, collective, at_least(0), "validations",
           "early stopping: end after this many validations in a row without a better loss; 0: disabled")
      .also_called({"early_stopping_patience"});
  rows.add("min_delta", &O::min_delta, collective, at_least(0), "",
           "early stopping: a loss is better if it is lower than the best one by more than this");
  rows.add("sample_every", &O::sample_every, collective, at_least(0), "steps",
           "steps between texts that the model generates; 0: never");
  return rows;
}

KeyRows<LogOptions> log_rows() {
  using O = LogOptions;
  KeyRows<O> rows("log", "Log");
  rows.add_path("dir", &O::dir, local,
                "folder of the results; empty: runs/<name of the file>, or without a file "
                "runs/<program>-<model.from>-<dataset>")
      .first()
      .also_called({"out_dir", "output", "output_dir"});
  rows.add(
          "every_steps", &O::every_steps, local, at_least(1), "steps",
          "fewest steps between log lines where the output is no terminal. Lines come at most twice a second "
          "in the first ten seconds, later at most every ten seconds")
      .also_called({"log_interval", "logging_steps"});
  rows.add("trace", &O::trace, {{"none", LogTrace::none}, {"steps", LogTrace::steps}}, local,
           "steps: write what ten early steps of each start spent their time on into trace-rank<N>.json, for "
           "report and Perfetto");
  return rows;
}

JobKeys make_keys() {
  JobKeys keys;
  keys.add(text_rows(), &Job::text);
  keys.add(model_rows(), &Job::model);
  keys.add(length_rows(), &Job::length);
  keys.add(batch_rows(), &Job::batches);
  keys.add(schedule_rows(), &Job::schedule);
  keys.add(optimizer_rows(), &Job::optimizer);
  KeyRows<ComputeOptions> compute("train", "");
  add_arithmetic(compute);
  add_memory(compute);
  keys.add(compute, &Job::compute);
  keys.add(validation_rows(), &Job::validation);
  keys.add(dist_rows(), &Job::dist);
  keys.add(snapshot_rows(), &Job::snapshots);
  keys.add(log_rows(), &Job::log);
  keys.suggest("--fresh", {"overwrite_output_dir"});
  keys.suggest("model.preset or model.from", {"model"});
  keys.suggest("train.precision=bf16", {"bf16"});
  keys.suggest("train.precision=fp16", {"fp16"});
  return keys;
}

/// Returns the wording of programs with keys. An option has the name of its key's last part.
Wording wording_of(const KeyTable& keys) {
  Wording wording;
  for (const Key& key : keys.keys()) wording[key.name.substr(key.name.find('.') + 1)] = key.name;
  wording[out_of_memory] =
      "lower train.batch_size, raise train.accumulate, set train.logit_rows, or shorten data.block_size";
  wording[foreign_plans] = "start a new run with another snapshot.path";
  return wording;
}

}  // namespace

Job JobKeys::job_of(const Settings& settings) const {
  Job job;
  for (size_t k = 0; k < keys_.size(); ++k)
    fields_[k].read(job, settings[keys_[k].name], keys_[k].name + ": ");
  return job;
}

Settings JobKeys::settings_of(const Job& job) const {
  SettingLayer values;
  for (size_t k = 0; k < keys_.size(); ++k) values.push_back({keys_[k].name, fields_[k].write(job), ""});
  Settings settings(*this);
  settings.add(values);
  return settings;
}

const JobKeys& job_keys() {
  static const JobKeys keys = [] {
    JobKeys all = make_keys();
    set_wording(wording_of(all));
    return all;
  }();
  return keys;
}

Arguments split_arguments(int argc, const char* const* argv) {
  return split_arguments(argc, argv, {"snapshot.resume", "never"});
}

std::string job_help(const std::string& program, const SettingLayer& defaults) {
  return concat("usage: ", program, usage, key_help(Settings(job_keys(), defaults)));
}

std::string own_model_help(const SettingLayer& defaults, const std::vector<std::string>& without) {
  return own_model_usage + key_help(Settings(job_keys(), defaults), without);
}

std::string to_ini(const Job& job) { return to_ini(job_keys().settings_of(job)); }

}  // namespace lockstep
