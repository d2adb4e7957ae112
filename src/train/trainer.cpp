// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/trainer.h"

#include <filesystem>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/comm/stop_request.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/terminal.h"
#include "lockstep/core/text.h"
#include "lockstep/job/load_job.h"
#include "lockstep/parameters/keys.h"
#include "lockstep/program/program.h"
#include "lockstep/program/signals.h"
#include "lockstep/snapshot/run_folder.h"
#include "lockstep/train/matmul_tuning.h"
#include "lockstep/train/rank_table.h"
#include "lockstep/train/run.h"
#include "lockstep/train/run_log.h"

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
bool open_log(const Job& job, const World& world) {
  std::error_code problem;
  std::filesystem::create_directories(job.log.dir, problem);
  const std::string message = concat("log.dir: ", job.log.dir, " cannot be created: ", problem.message());
  require(!problem || !world.is_first(), message);
  if (problem) {
    log_warning(message + "; this rank writes no file there");
  } else if (world.is_first_in_process()) {
    const std::string path = concat(job.log.dir, "/rank", world.rank(), ".log");
    set_log_file(path);
    report_log_file(path);
    log_to_file(describe_rank(world, job.compute.threads));
  }
  return !problem;
}

/// Returns true on all ranks if one was asked to stop while data or snapshots were read, or matmuls tuned.
bool is_stopped_before_start(const World& world) {
  if (!any_rank_was_asked_to_stop(world)) return false;
  if (world.is_first())
    log_info("stopped on request before the training began; run the same command again to continue");
  return true;
}

/// Returns the job with the end of the decay, if that is open. A resumed run keeps its earlier value, even if
/// its length changes.
Job with_decay(const Job& job, const std::string& resumed_settings, bool is_first_rank) {
  if (job.schedule.decay_steps > 0) return job;
  const ScheduleOptions earlier = schedule_rows().in_ini(resumed_settings, "the resumed run");
  const int64_t steps = job.length.steps, decay = earlier.decay_steps > 0 ? earlier.decay_steps : steps;
  Job closed = job;
  closed.schedule.decay_steps = decay;
  check_together(closed, job_keys().settings_of(closed));
  if (is_first_rank && decay != steps && job.schedule.schedule != Schedule::constant)
    log_info(concat("train.decay_steps = ", decay, ", as in the resumed run: ",
                    decay < steps ? "the learning rate is train.min_lr from that step on"
                                  : "the learning rate does not fall to train.min_lr"));
  return closed;
}

/// Trains in a folder that this run owns. Returns the exit code.
int train_in(RunFolder& folder, const Job& given, const World& world, const TrainingTask& task,
             double planned_bytes) {
  if (const auto& finished = folder.finished_run()) {
    if (!world.is_first()) return 0;
    log_info("this run is already finished, and nothing is changed; --fresh trains it again from the start");
    log_end(given, task.facts(), finished->step, finished->parameters_hash, finished->snapshot_path);
    return 0;
  }
  const Job job = with_decay(given, folder.resumed_settings(), world.is_first());
  const bool has_log_folder = open_log(job, world);
  print_rank_table(world);
  if (!environment_if_set("LOCKSTEP_RECORDS")) record_flights(world, has_log_folder ? job.log.dir : "");
  ParameterSpace space(task.parameters(), {.seed = job.seed(), .group = task.group_rule()});
  space.set_precision(job.compute.precision);
  choose_matmul_plans(job, world, task, folder.snapshot() ? folder.snapshot()->matmul_plans : "");
  if (is_stopped_before_start(world)) return exit_stopped;
  return run_training({job, world, task, space, folder, planned_bytes});
}

}  // namespace

int train(const Job& given, const World& world, const TrainingTask& task, double planned_bytes) {
  const std::vector<NamedTensor> parameters = task.parameters();
  const Device device = parameters.empty() ? Device::cpu : device_of(parameters[0].tensor.stream());
  expect(given.compute.device && given.dist.replicas > 0 && given.compute.threads > 0,
         "train() needs the job that resolve() returns");
  require(given.compute.device == device && device_of(current_stream()) == device,
          "train.device = ", name(*given.compute.device), ", but the model was made on ", name(device));
  const Job job = with_length(given, task.training_data(), task.validation_data() != nullptr);
  const std::map<std::string, std::string> artifacts = task.facts().artifacts;
  heartbeat().replicas = job.dist.replicas;
  {
    // A rank may still read its data.
    const NoTimeout no_timeout(world.communicator());
    require_equal_on_all_ranks(world.communicator(), "the data", hash_lines(artifacts));
  }
  if (is_stopped_before_start(world)) return exit_stopped;
  if (const auto records = environment_if_set("LOCKSTEP_RECORDS")) record_flights(world, *records);
  RunFolder folder(request_of(job, artifacts), world);
  // The owner of the folder has a thread that may wait for storage.
  return report_first([&] { return train_in(folder, job, world, task, planned_bytes); });
}

int print_once(const std::string& text) {
  if (detail::is_launched_first()) write_output(text + (text.ends_with('\n') ? "" : "\n"));
  return 0;
}

int print_help(const std::string& text) { return print_once(wrapped_lines(text, output_columns())); }

World start_world() {
  listen_for_stop_requests();
  World world = World::from_environment();
  set_log_rank(world.rank(), !world.is_first());
  return world;
}

}  // namespace lockstep
