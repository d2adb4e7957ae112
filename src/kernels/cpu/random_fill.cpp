// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/random_fill.h"

#include <array>
#include <cmath>

#include "lockstep/kernels/cpu/map.h"
#include "lockstep/kernels/elementary.h"
#include "lockstep/kernels/random.h"

namespace lockstep {
namespace {

/// y[i] = values(draw of group e / 4)[e % 4] for e = first + i, rounded to the dtype of y. If a chunk or an
/// end of y cuts a group, both sides draw the group.
template <class Fill, class Values>
void fill_groups(const CpuStream& stream, const Fill& k, Values values) {
  const uint64_t key = derive_key(k.seed, k.stream_id, initialization_lane);
  const View& y = k.y;
  with_float_type(y.dtype, [&]<class T>() {
    constexpr int64_t grain = 4096;
    stream.for_each_chunk(y.size(), grain, [&, out = y.as<T>()](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end;) {
        const auto element = static_cast<uint64_t>(k.first + i);
        const uint64_t group = element / 4;
        const std::array<double, 4> four =
            values(philox<10>(key, {static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), 0, 0}));
        for (size_t j = element % 4; j < 4 && i < end; ++j, ++i)
          out[i] = static_cast<T>(static_cast<Compute<T>>(four[j]));
      }
    });
  });
}

}  // namespace

void run(CpuStream stream, const FillNormal& k) {
  fill_groups(stream, k, [&](const std::array<uint32_t, 4>& words) {
    std::array<double, 4> values;
    for (size_t pair = 0; pair < 4; pair += 2) {
      const double uniform = (words[pair] + 1.0) * 0x1p-32;  // in (0, 1], for the logarithm
      const double radius = k.std * std::sqrt(-2.0 * math::log(uniform));
      const auto [sin, cos] = math::sin_and_cos_of_turns(words[pair + 1] * 0x1p-32);
      values[pair] = k.mean + radius * cos;
      values[pair + 1] = k.mean + radius * sin;
    }
    return values;
  });
}

void run(CpuStream stream, const FillUniform& k) {
  fill_groups(stream, k, [&](const std::array<uint32_t, 4>& words) {
    std::array<double, 4> values;
    for (size_t j = 0; j < 4; ++j) values[j] = k.low + (k.high - k.low) * uniform_float(words[j]);
    return values;
  });
}

}  // namespace lockstep
