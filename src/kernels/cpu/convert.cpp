// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/convert.h"

#include "lockstep/kernels/cpu/map.h"
#include "lockstep/kernels/elementwise.h"

namespace lockstep {
namespace {

template <class X>
void convert_from(const CpuStream& stream, const Convert& k) {
  // A type that holds every value of x, so that only the conversion to y rounds.
  using Wide = std::conditional_t<std::same_as<X, double> || std::same_as<X, int32_t>, double, float>;
  with_float_type(k.y.dtype, [&]<class Y>() {
    stream.for_each_chunk(k.x.size(), elementwise_grain,
                          [x = k.x.as<X>(), y = k.y.as<Y>()](int64_t begin, int64_t end) {
                            map_range<Wide>(
                                begin, end, y, [](Wide value) { return value; }, x);
                          });
  });
}

}  // namespace

void run(CpuStream stream, const Convert& k) {
  if (k.x.dtype == k.y.dtype) return run(stream, Copy{.x = k.x, .y = k.y});
  if (k.x.dtype == DType::i32) return convert_from<int32_t>(stream, k);
  with_float_type(k.x.dtype, [&]<class X>() { convert_from<X>(stream, k); });
}

}  // namespace lockstep
