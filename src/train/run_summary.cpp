// SPDX-License-Identifier: Apache-2.0
#include "train/run_summary.h"

#include "core/error.h"
#include "core/file.h"
#include "core/gpu.h"
#include "core/log.h"
#include "core/text.h"
#include "core/version.h"

namespace lockstep {

void tell_start(const Config& config, const World& world, const TrainingTask& task,
                const DataParallel& data_parallel, int64_t steps) {
  const int gpu = gpu_of(current_stream());
  const std::string device =
      gpu >= 0
          ? concat(describe_gpu(gpu), ", ", config.train.precision, ", gradients ", data_parallel.transport())
          : concat(counted(config.train.threads, "thread"), " each, ", instruction_set());
  log_info(concat(counted(config.dist.replicas, "replica"), " on ",
                  counted(world.size(), gpu >= 0 ? "GPU rank" : "CPU rank"), " (", device, ")"));
  if (!task.description.empty()) log_info(task.description);
  log_info(concat("memory: ", counted(data_parallel.gradient_sets(), "gradient buffer"), " of ",
                  bytes_text(4.0 * static_cast<double>(count_parameters(task.parameters))), " a rank"));
  log_info(concat("training: ", counted(steps, "step"), ", results in ", config.log.dir));
}

void tell_end(const Config& config, const TrainingTask& task, int64_t steps, const std::string& hash) {
  log_info(concat("done: ", counted(steps, "step"), ", parameters ", hash, ", results in ", config.log.dir));
  if (config.snapshot.path.empty()) return;
  const std::string how = concat(program_beside(task.user_program), " --snapshot ", config.log.dir);
  log_info(concat("the trained model: ", task.user_program.empty() ? config.snapshot.path : how));
}

}  // namespace lockstep
