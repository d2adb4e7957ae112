// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <filesystem>
#include <utility>

#include "comm/heartbeat.h"
#include "comm/stop_request.h"
#include "config/config_schema.h"
#include "core/environment.h"
#include "core/error.h"
#include "core/gpu.h"
#include "core/host.h"
#include "core/log.h"
#include "core/terminal.h"
#include "core/text.h"
#include "core/version.h"
#include "kernels/processor.h"
#include "program/program.h"
#include "program/signals.h"
#include "snapshot/run_folder.h"
#include "train/matmul_tuning.h"
#include "train/rank_table.h"
#include "train/run.h"
#include "train/run_log.h"

namespace lockstep {

namespace {

void record_flights(const World& world, const std::string& folder) {
  try {
    world.communicator().record_flights_in(folder);
  } catch (const Error& failure) {
    log_warning(concat(failure.what(), "; the flight record is kept in memory only"));
  }
}

/// Opens this rank's log in log.dir and logs its start there. Makes the folder on every host, because hosts
/// may not share it. Returns whether the folder exists: only rank 0 needs it.
bool open_log(const Config& config, const World& world) {
  std::error_code problem;
  std::filesystem::create_directories(config.log.dir, problem);
  const std::string message = concat("log.dir: ", config.log.dir, " cannot be created: ", problem.message());
  require(!problem || !world.is_first(), message);
  if (problem) {
    log_warning(message + "; this rank writes no file there");
  } else if (world.is_first_in_process()) {
    const std::string path = concat(config.log.dir, "/rank", world.rank(), ".log");
    set_log_file(path);
    report_log_file(path);
    log_to_file(describe_rank(world, config.train.threads));
  }
  return !problem;
}

/// Resolves train.decay_steps = 0. A resumed run keeps its earlier value, even if its length changes.
void settle_decay(Config& config, int64_t earlier, bool is_first_rank) {
  TrainConfig& train = config.train;
  if (train.decay_steps > 0) return;
  train.decay_steps = earlier > 0 ? earlier : train.steps;
  config = validated(std::move(config));
  if (is_first_rank && train.decay_steps != train.steps && train.schedule != "constant")
    log_info(concat("train.decay_steps = ", train.decay_steps, ", as in the resumed run: ",
                    train.decay_steps < train.steps ? "the learning rate is train.min_lr from that step on"
                                                    : "the learning rate does not fall to train.min_lr"));
}

/// Returns true on all ranks if one was asked to stop while data or snapshots were read, or matmuls tuned.
bool is_stopped_before_start(const World& world) {
  if (!any_rank_was_asked_to_stop(world)) return false;
  if (world.is_first())
    log_info("stopped on request before the training began; run the same command again to continue");
  return true;
}

/// Replaces PyTorch's names of stages. Sets dist.group to the ranks of a host for HYBRID_SHARD. Checks both.
void settle_sharding(Config& config, const World& world) {
  DistConfig& dist = config.dist;
  if (dist.shard == "HYBRID_SHARD" && dist.group == 0) dist.group = world.local_size();
  const std::map<std::string, std::string> names{
      {"NO_SHARD", "none"}, {"SHARD_GRAD_OP", "gradients"}, {"FULL_SHARD", "full"}, {"HYBRID_SHARD", "full"}};
  if (const auto found = names.find(dist.shard); found != names.end()) dist.shard = found->second;
  require_sharding(config, world.size());
}

void require_same_configuration(const Config& config, const World& world) {
  std::string lines = concat("arithmetic = ", arithmetic_version, "\n");
  for (const ConfigKey& key : config_schema())
    if (key.key_class != KeyClass::local) lines += concat(key.name, " = ", key.text(config), "\n");
  require_equal_on_all_ranks(world.communicator(), "the configuration", lines);
}

/// Turns AMX on or off. Throws UserError on every rank if AMX is requested and one of them lacks it.
void settle_amx(const Config& config, const World& world) {
  if (!config.train.amx) return use_bf16_unit(false);
  require(
      config.train.device == "cpu" && config.train.precision == "bf16",
      "train.amx = true needs train.device = cpu and train.precision = bf16: AMX multiplies nothing else");
  const std::vector<std::string> hosts =
      world.communicator().all_gather_text(has_bf16_unit() ? "" : host_name());
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    require(hosts[rank].empty(), "train.amx = true, but rank ", rank, " on ", hosts[rank],
            " has no AMX: its processor, its system or this build lacks it. Remove train.amx; the run then "
            "has other bits");
  use_bf16_unit(true);
}

/// Copies settings of an earlier run to keys that are not set. Rank 0 finds that run, and all ranks use its
/// values.
void adopt_from_earlier_run(Config& config, const World& world) {
  std::string there;
  on_first_rank(world, [&] { there = settings_to_go_on_with(config); });
  there = world.communicator().broadcast_text(there, 0);
  if (there.empty()) return;
  const auto adopted = adopt_unset(config, config_of_earlier_run(there, "the earlier run"));
  if (world.is_first() && !adopted.empty())
    log_info(concat("not set, so taken from the resumed run: ", joined(adopted)));
}

/// Trains in a folder that this run owns. Returns the exit code.
int train_in(RunFolder& folder, Config& config, const World& world, const TrainingTask& task) {
  if (const auto& finished = folder.finished_run()) {
    if (!world.is_first()) return 0;
    log_info("this run is already finished, and nothing is changed; --fresh trains it again from the start");
    config.snapshot.path = finished->snapshot_path;
    log_end(config, task, finished->step, finished->parameters_hash);
    return 0;
  }
  settle_decay(config, folder.decay_steps(), world.is_first());
  const bool has_log_folder = open_log(config, world);
  print_rank_table(world);
  if (!environment_if_set("LOCKSTEP_RECORDS")) record_flights(world, has_log_folder ? config.log.dir : "");
  ParameterSpace space(task.parameters, task.group);
  space.set_precision(precision_of(config));
  settle_matmul_plans(config, world, task, folder.snapshot() ? folder.snapshot()->matmul_plans : "");
  if (is_stopped_before_start(world)) return exit_stopped;
  return run_training(config, world, task, space, folder);
}

}  // namespace

void settle_steps(Config& config, const std::shared_ptr<const Dataset>& training, bool has_validation) {
  TrainConfig& train = config.train;
  if (train.epochs > 0) {
    const Loader loader(training, {.replicas = config.dist.replicas,
                                   .batch_size = train.batch_size,
                                   .shuffle = false,
                                   .whole_batches = train.accumulate > 1,
                                   .prefetch = false});
    require(!__builtin_mul_overflow(train.epochs, loader.steps_per_epoch(), &train.steps),
            "train.epochs = ", train.epochs, " of ", loader.steps_per_epoch(), " steps are too many steps");
    train.epochs = 0;
    config = validated(std::move(config));
  }
  require(train.precision != "fp16" || train.steps <= INT32_MAX, "train.steps = ", train.steps,
          ", but the loss scaler of train.precision = fp16 counts at most ", INT32_MAX, " steps");
  require(
      train.patience == 0 || has_validation, "train.patience = ", train.patience,
      " needs validation data, but there is none; leave the key out, or lower data.train_split if it is 1");
}

int train(Config config, const World& world, const TrainingTask& task) {
  const Device device = task.parameters.empty() ? Device::cpu : device_of(task.parameters[0].tensor.stream());
  if (config.train.device == "auto") config.train.device = name(device);
  require(config.train.device == name(device) && device_of(current_stream()) == device,
          "train.device = ", config.train.device, ", but the model was made on ", name(device));
  if (!config.is_settled) {
    config.unset.clear();  // the model was made with the present values
    settle(config, world);
  }
  settle_steps(config, task.training_data, task.validation_data != nullptr);
  heartbeat().replicas = config.dist.replicas;
  {
    // A rank may still read its data.
    const NoTimeout no_timeout(world.communicator());
    require_equal_on_all_ranks(world.communicator(), "the data", hash_lines(task.artifacts));
  }
  if (is_stopped_before_start(world)) return exit_stopped;
  if (const auto records = environment_if_set("LOCKSTEP_RECORDS")) record_flights(world, *records);
  RunFolder folder(config, world, task.artifacts);
  // The owner of the folder has a thread that may wait for storage.
  return report_first([&] { return train_in(folder, config, world, task); });
}

Shard shard_of(const std::string& stage) {
  return stage == "full"        ? Shard::full
         : stage == "gradients" ? Shard::gradients
         : stage == "optimizer" ? Shard::optimizer
                                : Shard::none;
}

Offload offload_of(const std::string& what) {
  return what == "all" ? Offload::all : what == "optimizer" ? Offload::optimizer : Offload::none;
}

void require_sharding(const Config& config, int ranks) {
  const DistConfig& dist = config.dist;
  require(dist.shard == "none" || dist.reduction == "tree", "dist.shard = ", dist.shard,
          " needs dist.reduction = tree: each rank adds the gradients that it owns in the tree's order");
  require(dist.offload == "none" || dist.reduction == "tree", "dist.offload = ", dist.offload,
          " needs dist.reduction = tree: each rank updates the offloaded values that it owns");
  const Offload offload = offload_of(dist.offload);
  const Shard stage = stage_with(shard_of(dist.shard), offload);
  require(!config.train.tune_matmul || (stage != Shard::gradients && stage != Shard::full),
          "train.tune_matmul runs the whole model on rank 0, but ",
          offload == Offload::all ? "dist.offload = all" : "dist.shard = " + dist.shard,
          " is meant to avoid that: remove one of the two");
  check_group(shard_of(dist.shard), ranks, static_cast<int>(dist.group), offload);
}

DType precision_of(const Config& config) {
  const std::string& precision = config.train.precision;
  return precision == "bf16" ? DType::bf16 : precision == "fp16" ? DType::f16 : DType::f32;
}

void settle(Config& config, const World& world) {
  config = validated(std::move(config));
  world.communicator().set_timeout(config.dist.timeout_s);
  settle_device(config);
  adopt_from_earlier_run(config, world);
  config = validated(std::move(config));  // the earlier run has set other keys
  settle_device(config);
  settle_replicas(config, world.size());
  settle_sharding(config, world);
  require_same_configuration(config, world);
  if (config.train.threads == 0) config.train.threads = world.share_of_cores();
  set_threads(static_cast<int>(config.train.threads));
  settle_amx(config, world);
  config.is_settled = true;
}

int print_once(const std::string& text) {
  if (is_launched_first()) write_output(text + (text.ends_with('\n') ? "" : "\n"));
  return 0;
}

int print_help(const std::string& text) { return print_once(wrapped_lines(text, output_columns())); }

World start_world(Config& config) {
  listen_for_stop_requests();
  const World world = World::from_environment();
  set_log_rank(world.rank(), !world.is_first());
  settle(config, world);
  if (config.train.device == "cuda") {
    set_current_stream(make_gpu_stream(world.gpu()));
    require_equal_on_all_ranks(world.communicator(), "their GPUs",
                               describe_gpu(gpu_of(current_stream())) + "\n");
  }
  return world;
}

}  // namespace lockstep
