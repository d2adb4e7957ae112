// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/evaluation.h"

#include <cmath>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/comm/stop_request.h"
#include "lockstep/core/error.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/text.h"
#include "lockstep/kernels/spans.h"

namespace lockstep {

std::optional<double> evaluate(const World& world, DataParallel& data_parallel, const TrainingTask& task,
                               const Dataset& data, int64_t batch_size,
                               const std::function<void(int64_t, int64_t)>& progress) {
  struct WasStopped {};
  const MemoryScope scope("validation");
  const SpanRange span("validation");
  const GraphMemoryScope between_steps;
  try {
    return data_parallel.evaluate(
        data, batch_size,
        [&](const Batch& batch) {
          report_progress("evaluation");
          return task.loss(batch.inputs, batch.targets, {});
        },
        [&](int64_t done, int64_t batches) {
          if (any_rank_was_asked_to_stop(world)) throw WasStopped();
          if (progress) progress(done, batches);
        });
  } catch (const WasStopped&) {
    return std::nullopt;
  }
}

bool generate_sample(const World& world, DataParallel& data_parallel, const TrainingTask& task,
                     const std::function<void(const std::string&)>& print) {
  const auto write = [&](const std::function<bool()>& go_on) {
    const MemoryScope scope("sample text");
    const GraphMemoryScope between_steps;
    data_parallel.together([&] { print(task.sample_text(go_on)); });
  };
  const bool gathers = data_parallel.setup.sharding.cuts_reads();
  return gathers ? on_all_ranks_in_parts(world, write) : on_first_rank_in_parts(world, write);
}

void EarlyStopping::judge(int64_t step, double loss) {
  const bool is_better = std::isfinite(loss) && (!record.best_loss || loss < *record.best_loss - min_delta);
  if (is_better)
    record = {.best_loss = loss, .best_step = step, .since_best = 0};
  else
    ++record.since_best;
}

std::string EarlyStopping::reason() const {
  if (!is_over()) return "";
  const std::string since = counted(record.since_best, "validation");
  return record.best_loss ? concat("stopped early: no better validation loss than ", *record.best_loss,
                                   " after step ", record.best_step, " in ", since)
                          : concat("stopped early: no finite validation loss in ", since);
}

}  // namespace lockstep
