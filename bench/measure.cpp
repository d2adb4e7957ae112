// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/memory.h"
#include "lockstep/kernels/peak_flops.h"

namespace lockstep {
namespace {

constexpr double sample_seconds = 1e-3;
constexpr size_t fewest_samples = 7;

double seconds_of(const std::function<void()>& body, int64_t calls) {
  const auto begin = Clock::now();
  for (int64_t call = 0; call < calls; ++call) body();
  return seconds_since(begin) / static_cast<double>(calls);
}

/// Returns the number of calls that make a sample long enough for the clock. The calls that it times are the
/// warm-up.
int64_t calls_per_sample(const std::function<void()>& body) {
  double best = seconds_of(body, 1);
  for (int repeat = 0; repeat < 3; ++repeat) best = std::min(best, seconds_of(body, 1));
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(sample_seconds / std::max(best, 1e-8))));
}

}  // namespace

Timing timing_of(std::vector<double> samples) {
  expect(!samples.empty(), "no samples");
  std::sort(samples.begin(), samples.end());
  const auto quantile = [&](double part) {
    return samples[static_cast<size_t>(std::lround(part * static_cast<double>(samples.size() - 1)))];
  };
  return {quantile(0.5), 100.0 * (quantile(0.75) - quantile(0.25)) / quantile(0.5)};
}

std::vector<Timing> measure(const std::vector<std::function<void()>>& bodies, double seconds) {
  std::vector<int64_t> calls;
  for (const auto& body : bodies) calls.push_back(calls_per_sample(body));
  std::vector<std::vector<double>> samples(bodies.size());
  double spent = 0;
  while (samples[0].size() < fewest_samples || spent < seconds * static_cast<double>(bodies.size()))
    for (size_t body = 0; body < bodies.size(); ++body) {
      samples[body].push_back(seconds_of(bodies[body], calls[body]));
      spent += samples[body].back() * static_cast<double>(calls[body]);
    }
  std::vector<Timing> timings;
  for (auto& of_body : samples) timings.push_back(timing_of(std::move(of_body)));
  return timings;
}

double peak_flops(const CpuStream& stream) {
  std::vector<double> of_thread(static_cast<size_t>(stream.pool->size()));
  stream.pool->run(stream.pool->size(),
                   [&](int64_t thread) { of_thread[static_cast<size_t>(thread)] = measure_peak_flops(); });
  return std::accumulate(of_thread.begin(), of_thread.end(), 0.0);
}

std::function<void()> make_copy(int64_t bytes, const CpuStream& stream) {
  const auto length = static_cast<size_t>(bytes / 2);
  return [stream, from = std::vector<char>(length), to = std::vector<char>(length)]() mutable {
    const auto count = static_cast<int64_t>(to.size());
    const int64_t share = (count + stream.pool->size() - 1) / stream.pool->size();
    stream.for_each_chunk(count, share, [&](int64_t begin, int64_t end) {
      std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin));
    });
  };
}

std::function<void()> make_read(int64_t bytes, const CpuStream& stream) {
  using Line = uint64_t __attribute__((vector_size(64)));
  constexpr int64_t places = 8, words_per_line = sizeof(Line) / sizeof(uint64_t);
  const int64_t steps = bytes / (places * static_cast<int64_t>(sizeof(Line)));
  const int64_t words = steps * places * words_per_line;
  const auto memory = allocate(bytes, stream);
  auto* first = reinterpret_cast<Line*>(memory.get());
  std::fill_n(reinterpret_cast<uint64_t*>(memory.get()), words, uint64_t{1});
  const int64_t grain = steps / (2 * stream.pool->size()) + 1;
  return [=, sums = std::vector<uint64_t>(static_cast<size_t>(steps / grain + 1))]() mutable {
    stream.for_each_chunk(steps, grain, [&](int64_t begin, int64_t end) {
      Line sum{};
      const Line* chunk = first + begin * places;
      for (int64_t step = 0; step < end - begin; ++step)
#pragma GCC unroll 8
        for (int64_t place = 0; place < places; ++place) sum += chunk[place * (end - begin) + step];
      uint64_t total = 0;
      for (int64_t word = 0; word < words_per_line; ++word) total += sum[word];
      sums[static_cast<size_t>(begin / grain)] = total;
    });
    expect(std::accumulate(sums.begin(), sums.end(), uint64_t{0}) == static_cast<uint64_t>(words),
           "memory does not contain the values that were written");
    (void)memory;
  };
}

}  // namespace lockstep
