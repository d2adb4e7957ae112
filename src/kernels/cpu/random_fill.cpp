// SPDX-License-Identifier: Apache-2.0
#include "kernels/random_fill.h"

#include <array>
#include <cmath>
#include <numbers>

#include "core/random.h"
#include "kernels/cpu/map.h"

namespace lockstep {
namespace {

/// y[4 g + j] = values(draw of group g)[j], rounded to the dtype of y.
template <class Values>
void fill_groups(const CpuStream& stream, const View& y, uint64_t key, Values values) {
  with_float_type(y.dtype, [&]<class T>() {
    constexpr int64_t grain = 4096;
    stream.for_each_chunk(y.size(), grain, [&, out = y.as<T>()](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += 4) {
        const auto group = static_cast<uint64_t>(i) / 4;
        const std::array<double, 4> four =
            values(philox<10>(key, {static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), 0, 0}));
        for (int64_t j = 0; j < std::min<int64_t>(4, end - i); ++j)
          out[i + j] = static_cast<T>(static_cast<Compute<T>>(four[static_cast<size_t>(j)]));
      }
    });
  });
}

}  // namespace

void run(CpuStream stream, const FillNormal& k) {
  fill_groups(stream, k.y, derive_key(k.seed, k.stream_id, initialization_lane),
              [&](const std::array<uint32_t, 4>& words) {
                std::array<double, 4> values;
                for (size_t pair = 0; pair < 4; pair += 2) {
                  const double uniform = (words[pair] + 1.0) * 0x1p-32;  // in (0, 1], for the logarithm
                  const double radius = k.std * std::sqrt(-2.0 * std::log(uniform));
                  const double angle = 2.0 * std::numbers::pi * (words[pair + 1] * 0x1p-32);
                  values[pair] = k.mean + radius * std::cos(angle);
                  values[pair + 1] = k.mean + radius * std::sin(angle);
                }
                return values;
              });
}

void run(CpuStream stream, const FillUniform& k) {
  fill_groups(stream, k.y, derive_key(k.seed, k.stream_id, initialization_lane),
              [&](const std::array<uint32_t, 4>& words) {
                std::array<double, 4> values;
                for (size_t j = 0; j < 4; ++j) values[j] = k.low + (k.high - k.low) * uniform_float(words[j]);
                return values;
              });
}

}  // namespace lockstep
