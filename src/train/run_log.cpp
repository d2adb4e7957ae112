// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/run_log.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/comm/memory_limit.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/log.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/text.h"
#include "lockstep/core/version.h"
#include "lockstep/events/events.h"
#include "lockstep/job/keys.h"
#include "lockstep/kernels/matmul_plans.h"
#include "lockstep/kernels/processor.h"
#include "lockstep/program/build.h"

namespace lockstep {
namespace {

// The exact kernels of a GPU give other bits than those with approximate instructions.
#if defined(LOCKSTEP_CUDA_EXACT)
constexpr const char* kind_of_kernels = ", exact kernels";
#else
constexpr const char* kind_of_kernels = "";
#endif

std::vector<NamedTensor> trained(const TrainingTask& task) {
  std::vector<NamedTensor> parameters = task.parameters();
  std::erase_if(parameters, [](const NamedTensor& parameter) { return !parameter.tensor.requires_grad(); });
  return parameters;
}

/// Returns the command for a program in this one's folder: its bare name if PATH leads to it, else a path.
std::string program_beside(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path beside = fs::path(program_path()).parent_path() / name;
  if (fs::equivalent(beside, find_program(name), ignored)) return name;
  const fs::path nearer = beside.lexically_proximate(fs::current_path(ignored));
  return (*nearer.begin() == ".." ? beside : nearer).string();
}

}  // namespace

std::string scope_of_bits(const Job& job, const World& world) {
  const std::string device = device_of(current_stream()) == Device::cuda
                                 ? concat("GPU (", place_of_matmul_plans(), kind_of_kernels, ")")
                             : uses_bf16_unit() ? "CPU with AMX"
                                                : "CPU";
  const std::string sums = job.dist.reduction == Reduction::native
                               ? concat(", native sums of ", counted(world.size(), "rank"))
                               : "";
  return concat(device, ", arithmetic ", arithmetic_version, sums);
}

RunChain start_of_chain(const Job& job, const Artifacts& artifacts) {
  return RunChain::begin(semantic_lines(job_keys(), to_ini(job), "config.ini"), hash_lines(artifacts));
}

void compare_scope(const Snapshot& snapshot, const std::string& here) {
  if (snapshot.scope == here) return;
  const std::string there = snapshot.scope.empty() ? "an earlier version of this program" : snapshot.scope;
  log_warning(concat("the snapshot of step ", snapshot.step, " was written in another scope of bits: ", there,
                     ". This run resumes in: ", here,
                     ". From here on its bits may differ from those of a run that was never interrupted"));
}

void log_start(const RunParts& run, const DataParallel& data_parallel, int64_t steps) {
  const Job& job = run.job;
  const int gpu = gpu_of(current_stream());
  const std::string precision = precision_name(job.compute.precision);
  const bool is_fp32 = job.compute.precision == DType::f32;
  const std::string by{job.compute.precision == DType::bf16 ? bf16_instructions() : ""};
  const std::string device =
      gpu >= 0 ? concat(describe_gpu(gpu), ", ", precision, ", gradients ", data_parallel.setup.transport)
               : concat(counted(job.compute.threads, "thread"), " each, ", instruction_set(),
                        is_fp32 ? "" : ", " + precision, by.empty() ? "" : " by " + by);
  log_info(concat(counted(job.dist.replicas, "replica"), " on ",
                  counted(run.world.size(), gpu >= 0 ? "GPU rank" : "CPU rank"), " (", device, ")"));
  if (gpu < 0 && !is_fp32 && by.empty())
    log_info(concat("this processor computes ", precision,
                    " with fp32 instructions: it saves memory but no time"));
  if (const std::string text = run.task.facts().description; !text.empty()) log_info(text);
  const Sharding& sharding = data_parallel.setup.sharding;
  const std::string gradients =
      sharding.cuts_gradients()
          ? concat("dist.shard = ", name(sharding.stage), ", gradients unit by unit")
          : concat(counted(data_parallel.setup.gradient_sets, "gradient buffer"), " of ",
                   bytes_text(4.0 * static_cast<double>(count_parameters(trained(run.task)))), " a rank");
  const Offload offload = data_parallel.setup.offload;
  const std::string on_host = offload == Offload::none ? "" : concat(", dist.offload = ", name(offload));
  log_info(
      concat("memory: ", gradients, on_host,
             run.planned_bytes > 0 ? concat(", ", bytes_text(run.planned_bytes), " planned in all") : ""));
  if (const int64_t every = job.dist.audit_every; every > 0 && run.world.size() > 1)
    log_info(concat("audit: every ", counted(every, "step"), " another rank computes one of the ",
                    job.dist.replicas * job.batches.accumulate, " micro-batches again"));
  else if (every > 0)
    log_warning("dist.audit_every has no effect on one rank: an audit compares two");
  log_info(concat("training: ", counted(steps, "step"), ", results in ", job.log.dir));
}

void log_memory(const World& world, double planned_bytes) {
  if (planned_bytes == 0) return;
  const bool on_gpu = device_of(current_stream()) == Device::cuda;
  const double mine = on_gpu ? static_cast<double>(memory_table(current_stream()).back().peak_bytes)
                             : process_memory().most_resident;
  const std::vector<double> all = world.communicator().all_gather_value(mine);
  if (world.is_first())
    log_info(concat("memory: at most ", bytes_text(std::ranges::max(all)), " a rank, planned ",
                    bytes_text(planned_bytes)));
}

void PeakMemoryLog::log(int64_t step) {
  const std::string peaks = is_on_ ? peak_memory_text() : "";
  if (peaks == std::exchange(logged_, peaks)) return;
  log_to_file(concat("step ", step, ": ", peaks));
  if (folder_.empty()) return;
  std::map<std::string, std::string> bytes;
  for (const MemoryUse& use : memory_table(current_stream()))
    bytes[use.label] = std::to_string(use.peak_bytes);
  // The resident memory, which only the log file has, may grow long after all labels have peaked.
  if (bytes == std::exchange(recorded_, bytes)) return;
  append_event(folder_, "memory", step, bytes);
}

void log_end(const Job& job, const TaskFacts& task, int64_t steps, const std::string& hash,
             const std::string& snapshots, const std::string& reason) {
  if (!reason.empty()) log_info(reason);
  log_info(concat("done: ", counted(steps, "step"), ", parameters ", hash, ", results in ", job.log.dir));
  if (snapshots.empty()) return;
  const std::string how =
      concat(shell_quoted(program_beside(task.user_program)), " --snapshot ", shell_quoted(job.log.dir));
  log_info(concat("the trained model: ", task.user_program.empty() ? snapshots : how));
}

void log_stop(const Job& job, int64_t step, bool is_in_validation, bool is_saved) {
  const std::string when = concat(is_in_validation ? "in the validation after step " : "after step ", step);
  if (is_saved)
    log_info(concat("stopped on request ", when, "; run the same command again to resume"));
  else
    log_error(concat("stopped on request ", when, " without a snapshot",
                     job.snapshot_place().empty() ? ", because snapshot.path is none" : ""));
}

}  // namespace lockstep
