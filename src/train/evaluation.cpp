// SPDX-License-Identifier: Apache-2.0
#include "train/evaluation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "comm/heartbeat.h"
#include "comm/stop_request.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/text.h"
#include "data/loader.h"
#include "tensor/autograd.h"
#include "tensor/create.h"

namespace lockstep {
namespace {

/// Returns the number of targets that count in samples [first, first + samples), or the number of samples if
/// all have equally many.
double weight_of(const Dataset& data, int64_t first, int64_t samples) {
  int64_t weight = 0;
  for (int64_t i = 0; i < samples; ++i) weight += data.counted_targets(first + i).value_or(1);
  return static_cast<double>(weight);
}

}  // namespace

/// Runs the batches of evaluate() while all ranks run together.
static std::optional<double> evaluate_together(const World& world, bool gathers, const TrainingTask& task,
                                               const Dataset& data, int64_t batch_size,
                                               const std::function<void(int64_t, int64_t)>& progress) {
  const NoGrad no_grad;
  const MemoryScope scope("validation");
  const GraphMemoryScope between_steps;
  const int64_t batches = (data.size() + batch_size - 1) / batch_size;
  const int64_t most = (batches + world.size() - 1) / world.size();
  const int64_t begin = std::min(batches, most * world.rank());
  const int64_t end = std::min(batches, begin + most);
  std::vector<double> sums(static_cast<size_t>(most), 0.0);
  // Every rank runs the same number of rounds. On the last ranks some of them may be empty.
  for (int64_t round = 0; round < most; ++round) {
    if (any_rank_was_asked_to_stop(world)) return std::nullopt;
    if (progress) progress(round, most);
    const bool is_empty = begin + round >= end;
    if (is_empty && !gathers) continue;
    // With full sharding, a rank runs the first batch in an empty round to take part in the gathers.
    const int64_t first = is_empty ? 0 : (begin + round) * batch_size;
    std::vector<int64_t> indices(static_cast<size_t>(std::min(batch_size, data.size() - first)));
    std::iota(indices.begin(), indices.end(), first);
    report_progress("evaluation");
    const Batch batch = collect(data, indices, current_stream());
    const double mean = item(task.loss(batch.inputs, batch.targets, {}));
    if (!is_empty) sums[static_cast<size_t>(round)] = mean * weight_of(data, first, std::ssize(indices));
  }
  std::vector<double> all(sums.size() * static_cast<size_t>(world.size()));
  world.communicator().all_gather(sums.data(), most * 8, all.data());
  double total = 0.0;
  for (int64_t batch = 0; batch < batches; ++batch) total += all[static_cast<size_t>(batch)];
  return total / weight_of(data, 0, data.size());
}

std::optional<double> evaluate(const World& world, DataParallel& data_parallel, const TrainingTask& task,
                               const Dataset& data, int64_t batch_size,
                               const std::function<void(int64_t, int64_t)>& progress) {
  std::optional<double> loss;
  data_parallel.together([&] {
    loss =
        evaluate_together(world, data_parallel.setup.sharding.cuts_reads(), task, data, batch_size, progress);
  });
  return loss;
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
