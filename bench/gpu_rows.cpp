// SPDX-License-Identifier: Apache-2.0
#include "gpu_rows.h"

#include <algorithm>
#include <cmath>

#include "lockstep/core/clock.h"
#include "lockstep/core/graph.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/text.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/matmul.h"
#include "lockstep/kernels/matmul_plans.h"
#include "measure.h"
#include "report.h"

namespace lockstep {
namespace {

using Calls = std::vector<std::function<void()>>;

constexpr int64_t most_calls = 4000;  ///< calls in one graph
constexpr size_t most_sets = 64;      ///< sets of operands

/// Calls that take turns, recorded as one graph so that host time is not measured. Keeps the calls alive
/// because the graph reads their operands.
class Replay {
 public:
  /// Runs each call once to make its matmul plan. Then records enough rounds for one sample.
  Replay(Calls calls, double sample_seconds) : calls_(std::move(calls)) {
    for (const auto& call : calls_) call();
    record(1);
    (*this)();
    const auto begin = Clock::now();
    (*this)();
    const double elapsed = seconds_since(begin);
    const auto most = std::max<int64_t>(1, most_calls / static_cast<int64_t>(calls_.size()));
    const double rounds = std::ceil(sample_seconds / std::max(elapsed, 1e-6));
    if (rounds > 1) record(std::clamp<int64_t>(static_cast<int64_t>(rounds), 1, most));
  }

  void operator()() const {
    graph_->launch();
    synchronize(current_stream());
  }
  /// Converts the timing of a replay to the timing of one call.
  Timing of_call(Timing timing) const {
    timing.seconds /= static_cast<double>(rounds_ * static_cast<int64_t>(calls_.size()));
    return timing;
  }

 private:
  void record(int64_t rounds) {
    synchronize(current_stream());
    graph_.reset();
    graph_ = std::make_unique<Graph>(current_stream(), [&] {
      for (int64_t round = 0; round < rounds; ++round)
        for (const auto& call : calls_) call();
    });
    rounds_ = rounds;
  }

  Calls calls_;
  std::unique_ptr<Graph> graph_;
  int64_t rounds_ = 0;
};

/// Prepares enough sets of operands to exceed the cache, at most `most_sets`.
Calls calls_of(const KernelCase& one, const Work& first, int64_t rotated_bytes) {
  Calls calls{first.run};
  const int64_t sets = rotated_bytes / std::max<int64_t>(first.footprint, 1) + 1;
  while (calls.size() < std::min(static_cast<size_t>(sets), most_sets)) calls.push_back(one.prepare().run);
  return calls;
}

Calls square_product(int64_t extent, DType dtype) {
  const Tensor a = random_tensor({extent, extent}, dtype), b = random_tensor({extent, extent}, dtype);
  const Tensor c = empty({extent, extent}, dtype);
  const MatMul kernel{.a = a.view(), .b = b.view(), .c = c.view(), .transpose_b = true};
  return {work_of(kernel, {a, b, c}).run};
}

/// Copies with a kernel. On an H200 the kernel moves 4.1 TB/s and cudaMemcpyAsync 2.8.
Calls device_copy(int64_t bytes) {
  const Tensor from = random_tensor({bytes / 8}, DType::f32), to = empty({bytes / 8});
  return {work_of(Scale{.x = from.view(), .y = to.view(), .factor = 1.0}, {from, to}).run};
}

/// Discards all matmul plans, so that the next matmul of each shape makes a new one.
void start_plans(bool tuned) {
  import_matmul_plans("");
  set_matmul_tuning(tuned);
}

}  // namespace

struct GpuRows::Ceilings {
  explicit Ceilings(DType dtype, const GpuTiming& timing)
      : copy(device_copy(timing.copied_bytes), timing.sample_seconds),
        copied_bytes(static_cast<double>(timing.copied_bytes)),
        product((start_plans(true), square_product(timing.product_extent, dtype)), timing.sample_seconds),
        flops(2.0 * std::pow(static_cast<double>(timing.product_extent), 3)) {}

  Replay copy;
  double copied_bytes;
  Replay product;
  double flops;
};

GpuRows::GpuRows(DType dtype, const GpuTiming& timing)
    : dtype_(dtype), timing_(timing), ceilings_(std::make_unique<Ceilings>(dtype, timing)) {}
GpuRows::~GpuRows() = default;

std::vector<std::string> GpuRows::measure_case(const KernelCase& one) const {
  const Work work = one.prepare();
  const Calls calls = calls_of(one, work, timing_.rotated_bytes);
  start_plans(false);
  std::vector<Replay> replays;
  if (work.has_plan) replays.emplace_back(calls, timing_.sample_seconds);
  start_plans(true);
  replays.emplace_back(calls, timing_.sample_seconds);
  const Replay& kernel = replays.back();
  const bool computes = work.flops > 0;
  const Replay& ceiling = computes ? ceilings_->product : ceilings_->copy;
  std::vector<std::function<void()>> bodies = {std::cref(kernel), std::cref(ceiling)};
  if (work.has_plan) bodies.push_back(std::cref(replays.front()));
  const std::vector<Timing> timings = measure(bodies, timing_.seconds);

  const double amount = computes ? work.flops : static_cast<double>(work.bytes);
  const double unit = computes ? 1e-12 : 1e-9;
  const Timing ours = kernel.of_call(timings[0]);
  const double rate = amount / ours.seconds;
  const double highest =
      (computes ? ceilings_->flops : ceilings_->copied_bytes) / ceiling.of_call(timings[1]).seconds;
  const double untuned = work.has_plan ? amount / replays.front().of_call(timings[2]).seconds : 0.0;
  return {one.kernel,
          one.shape,
          name(dtype_),
          fixed_text(ours.seconds * 1e6, 1),
          fixed_text(ours.spread_percent, 1),
          fixed_text(rate * unit, 1),
          computes ? "TFLOP/s" : "GB/s",
          fixed_text(highest * unit, 1),
          fixed_text(100.0 * rate / highest, 1),
          work.has_plan ? "first plan" : "",
          work.has_plan ? fixed_text(untuned * unit, 1) : ""};
}

}  // namespace lockstep
