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

template <class T>
void square_block(const T* x, int64_t size, double& partial) {
  partial = lane_sum<double>(
      size, [=](int64_t i) { return static_cast<double>(x[i]) * static_cast<double>(x[i]); });
}

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

void run(CpuStream stream, const SumOfSquares& k) {
  struct Block {
    const View* input;
    int64_t begin;
  };
  std::vector<Block> blocks;
  for (const View& input : k.inputs)
    for (int64_t begin = 0; begin < input.size(); begin += sum_block) blocks.push_back({&input, begin});
  std::vector<double> partials(blocks.size());
  stream.for_each_chunk(
      static_cast<int64_t>(blocks.size()), blocks_per_chunk, [&](int64_t begin, int64_t end) {
        for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
          const View& input = *blocks[i].input;
          const int64_t size = std::min(sum_block, input.size() - blocks[i].begin);
          if (input.dtype == DType::f32)
            square_block(static_cast<const float*>(input.data) + blocks[i].begin, size, partials[i]);
          else
            square_block(static_cast<const double*>(input.data) + blocks[i].begin, size, partials[i]);
        }
      });
  *k.y.as<double>() = std::accumulate(partials.begin(), partials.end(), 0.0);
}

void run(CpuStream, const ClipFactor& k) {
  const double norm = std::sqrt(*k.sum_of_squares.as<double>());
  *k.norm.as<double>() = norm;
  *k.factor.as<float>() = clip_factor(norm, k.max_norm);
}

}  // namespace lockstep
