// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/run_state.h"

#include <algorithm>
#include <chrono>

#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/stream.h"
#include "lockstep/kernels/peak_flops.h"

namespace lockstep {

double peak_flops(const Job& job, const World& world) {
  const int gpu = gpu_of(current_stream());
  const double of_rank = gpu >= 0 ? gpu_peak_flops(gpu_properties(gpu).name, job.compute.precision)
                                  : measure_peak_flops() * static_cast<double>(job.compute.threads);
  return of_rank * world.size();
}

std::string trace_path(const Job& job, const World& world) {
  const bool traces = job.log.trace == LogTrace::steps && world.is_first_in_process();
  return traces ? concat(job.log.dir, "/", trace_file(world.rank())) : "";
}

void StepMeter::measure(StepMetrics& metrics, Clock::time_point begin, int64_t samples) {
  step_seconds_ = seconds_since(std::max(begin, last_end_));
  last_end_ = Clock::now();
  metrics.unix_seconds =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  metrics.step_ms = step_seconds_ * 1e3;
  metrics.tokens_per_second = static_cast<double>(samples * tokens_per_sample_) / step_seconds_;
  if (peak_flops_ > 0.0)
    metrics.model_flops_utilization = metrics.tokens_per_second * flops_per_token_ / peak_flops_;
  metrics.memory_mib = static_cast<double>(memory_table(current_stream()).back().peak_bytes) / 1048576.0;
}

}  // namespace lockstep
