// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "lockstep/dist/data_parallel.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"

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

double DataParallel::evaluate(const Dataset& data, int64_t batch_size,
                              const std::function<Tensor(const Batch&)>& loss,
                              const std::function<void(int64_t, int64_t)>& before_batch) {
  expect(batch_size > 0 && data.size() > 0, "evaluate: ", data.size(), " samples in batches of ", batch_size);
  const int ranks = communicator_->size(), rank = communicator_->rank();
  const int64_t batches = (data.size() + batch_size - 1) / batch_size;
  const int64_t most = (batches + ranks - 1) / ranks;
  const int64_t begin = std::min(batches, most * rank), end = std::min(batches, begin + most);
  std::vector<double> sums(static_cast<size_t>(most), 0.0);
  together([&] {
    const NoGrad no_grad;
    // Every rank runs the same number of rounds. On the last ranks some of them may be empty.
    for (int64_t round = 0; round < most; ++round) {
      if (before_batch) before_batch(round, most);
      const bool is_empty = begin + round >= end;
      if (is_empty && !setup.sharding.cuts_reads()) continue;
      // With full sharding, a rank runs the first batch in an empty round to take part in the gathers.
      const int64_t first = is_empty ? 0 : (begin + round) * batch_size;
      std::vector<int64_t> indices(static_cast<size_t>(std::min(batch_size, data.size() - first)));
      std::iota(indices.begin(), indices.end(), first);
      const double mean = item(loss(collect(data, indices, current_stream())));
      if (!is_empty) sums[static_cast<size_t>(round)] = mean * weight_of(data, first, std::ssize(indices));
    }
  });
  std::vector<double> all(sums.size() * static_cast<size_t>(ranks));
  communicator_->all_gather(sums.data(), most * 8, all.data());
  const double total = std::accumulate(all.begin(), all.begin() + batches, 0.0);
  return total / weight_of(data, 0, data.size());
}

}  // namespace lockstep
