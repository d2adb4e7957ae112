// SPDX-License-Identifier: Apache-2.0
#include "allreduce.h"

#include <algorithm>

#include "lockstep/core/clock.h"

namespace lockstep {
namespace {

constexpr float input(int rank, int64_t element) {
  return static_cast<float>((element * 7 + rank * 13) % 251);
}

}  // namespace

int64_t wrong_values(const AllReduceMethod& method, int64_t count, Communicator& communicator) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = input(communicator.rank(), i);
  method.write(values);
  communicator.barrier();
  method.reduce();
  method.finish();
  values = method.read();
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int rank = 0; rank < communicator.size(); ++rank) sum += input(rank, i);
    wrong += values[static_cast<size_t>(i)] != sum * method.scale;
  }
  const std::vector<int64_t> of_rank = communicator.all_gather_value(wrong);
  return *std::max_element(of_rank.begin(), of_rank.end());
}

std::vector<Timing> times_of(const std::vector<AllReduceMethod>& methods, int64_t count, int samples,
                             Communicator& communicator) {
  // Enough calls that the clock's resolution and the ranks' different start times are negligible.
  const int64_t calls = std::clamp<int64_t>((int64_t{4} << 20) / (count * 4), 1, 500);
  std::vector<std::vector<double>> of_method(methods.size());
  // Zeros stay zeros after any number of in-place sums.
  for (const AllReduceMethod& method : methods) method.write(std::vector<float>(static_cast<size_t>(count)));
  for (int sample = -2; sample < samples; ++sample)
    for (size_t i = 0; i < methods.size(); ++i) {
      communicator.barrier();
      const auto begin = Clock::now();
      for (int64_t call = 0; call < calls; ++call) methods[i].reduce();
      methods[i].finish();
      const double mine = seconds_since(begin) / static_cast<double>(calls);
      const std::vector<double> of_rank = communicator.all_gather_value(mine);
      const bool is_warm = sample >= 0;
      if (is_warm) of_method[i].push_back(*std::max_element(of_rank.begin(), of_rank.end()));
    }
  std::vector<Timing> timings;
  for (auto& seconds : of_method) timings.push_back(timing_of(std::move(seconds)));
  return timings;
}

BucketPlan one_bucket(int64_t count, int ranks) {
  BucketPlan plan;
  plan.elements = count;
  for (int rank = 0; rank < ranks; ++rank)
    plan.owned.push_back({{count / 16 * rank / ranks * 16, count / 16 * (rank + 1) / ranks * 16}});
  plan.buckets = {{.range = {0, count}, .owned = plan.owned}};
  return plan;
}

}  // namespace lockstep
