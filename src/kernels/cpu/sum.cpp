// SPDX-License-Identifier: Apache-2.0
#include "kernels/sum.h"

#include <cmath>
#include <numeric>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/map.h"

namespace lockstep {
namespace {

/// Blocks of a chunk.
constexpr int64_t blocks_per_chunk = elementwise_grain / sum_block;

int64_t count_blocks(const View& view) { return (view.size() + sum_block - 1) / sum_block; }

}  // namespace

void run(CpuStream stream, const Sum& k) {
  std::vector<double> partials(static_cast<size_t>(count_blocks(k.x)));
  with_compute_type(k.x.dtype, [&]<class T>() {
    stream.for_each_chunk(
        count_blocks(k.x), blocks_per_chunk, [&, all = k.x.as<T>()](int64_t begin, int64_t end) {
          for (int64_t block = begin; block < end; ++block) {
            const T* x = all + block * sum_block;
            const int64_t size = std::min(sum_block, k.x.size() - block * sum_block);
            partials[static_cast<size_t>(block)] = lane_sum<T>(size, [=](int64_t i) { return x[i]; });
          }
        });
    *k.y.as<T>() = static_cast<T>(std::accumulate(partials.begin(), partials.end(), 0.0));
  });
}

void run(CpuStream stream, const BlockSquares& k) {
  auto* sums = k.y.as<double>();
  with_compute_type(k.x.dtype, [&]<class T>() {
    const T* all = k.x.as<T>();
    for (const auto& [first, last] : k.ranges)
      stream.for_each_chunk(last - first, blocks_per_chunk, [&, first = first](int64_t begin, int64_t end) {
        for (int64_t block = first + begin; block < first + end; ++block) {
          const T* x = all + block * sum_block;
          const int64_t size = std::min(sum_block, k.x.size() - block * sum_block);
          sums[block] = lane_sum<double>(
              size, [=](int64_t i) { return static_cast<double>(x[i]) * static_cast<double>(x[i]); });
        }
      });
  });
}

void run(CpuStream, const ClipFactor& k) {
  const auto* squares = k.squares.as<double>();
  const double norm = std::sqrt(std::accumulate(squares, squares + k.squares.size(), 0.0));
  *k.norm.as<double>() = norm;
  *k.factor.as<float>() = clip_factor(norm, k.max_norm);
}

}  // namespace lockstep
