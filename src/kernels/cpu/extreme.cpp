// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/extreme.h"

#include "lockstep/kernels/cpu/broadcast.h"

namespace lockstep {
namespace {

/// Returns whether a is more extreme than b, which is compared with every value before a.
template <Extreme extreme, class C>
bool is_beyond(C a, C b) {
  return (extreme == Extreme::largest ? a > b : a < b) || (a != a && b == b);
}

/// Returns the place of the extreme of values[0, count). Lanes find the value, because their loop is one of
/// vectors. Then a search finds its first place.
template <Extreme extreme, class C, class T>
int64_t place_in_row(const T* values, int64_t count) {
  constexpr int64_t lanes = 64;
  C best[lanes];
  std::fill_n(best, lanes, static_cast<C>(values[0]));
  for (int64_t first = 0; first < count; first += lanes) {
    const int64_t width = std::min(lanes, count - first);
    for (int64_t lane = 0; lane < width; ++lane) {
      const C value = static_cast<C>(values[first + lane]);
      best[lane] = is_beyond<extreme>(value, best[lane]) ? value : best[lane];
    }
  }
  C result = best[0];
  for (const C value : best) result = is_beyond<extreme>(value, result) ? value : result;
  int64_t place = 0;
  const auto is_result = [&](C value) { return value == result || (value != value && result != result); };
  while (!is_result(static_cast<C>(values[place]))) ++place;
  return place;
}

template <Extreme extreme, class T>
void reduce_rows(const CpuStream& stream, const DimensionExtreme& k) {
  stream.for_each_chunk(k.outer(), elementwise_grain / k.count, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = k.x.as<T>() + row * k.count;
      const int64_t place = place_in_row<extreme, ElementOf<T>>(x, k.count);
      if (k.y) k.y.as<T>()[row] = x[place];
      if (k.places) k.places.as<int32_t>()[row] = static_cast<int32_t>(place);
    }
  });
}

/// Compares rows of `inner` columns, a block of columns at a time.
template <Extreme extreme, class T>
void reduce_columns(const CpuStream& stream, const DimensionExtreme& k) {
  using C = ElementOf<T>;
  constexpr int64_t columns = 256;
  const int64_t blocks = divide_up(k.inner, columns);
  const int64_t grain = elementwise_grain / (std::min(columns, k.inner) * k.count);
  stream.for_each_chunk(k.outer() * blocks, grain, [&](int64_t begin, int64_t end) {
    C best[columns];
    int32_t places[columns];
    for (int64_t block = begin; block < end; ++block) {
      const int64_t outer = block / blocks, column = block % blocks * columns;
      const int64_t width = std::min(columns, k.inner - column);
      const T* x = k.x.as<T>() + outer * k.count * k.inner + column;
      for (int64_t i = 0; i < width; ++i) best[i] = static_cast<C>(x[i]), places[i] = 0;
      for (int64_t n = 1; n < k.count; ++n)
        for (int64_t i = 0; i < width; ++i) {
          const C value = static_cast<C>(x[n * k.inner + i]);
          const bool is_better = is_beyond<extreme>(value, best[i]);
          best[i] = is_better ? value : best[i];
          places[i] = is_better ? static_cast<int32_t>(n) : places[i];
        }
      const int64_t first = outer * k.inner + column;
      for (int64_t i = 0; i < width && k.y; ++i) k.y.as<T>()[first + i] = x[places[i] * k.inner + i];
      if (k.places) std::copy_n(places, width, k.places.as<int32_t>() + first);
    }
  });
}

}  // namespace

void run(CpuStream stream, const DimensionExtreme& k) {
  with_any_type(k.x.dtype, [&]<class T>() {
    const auto reduce = [&]<Extreme extreme>() {
      k.inner == 1 ? reduce_rows<extreme, T>(stream, k) : reduce_columns<extreme, T>(stream, k);
    };
    k.extreme == Extreme::largest ? reduce.template operator()<Extreme::largest>()
                                  : reduce.template operator()<Extreme::smallest>();
  });
}

void run(CpuStream stream, const ExtremeBackward& k) {
  with_any_type(k.dx.dtype, [&]<class T>() {
    const int64_t grain = elementwise_grain / std::max<int64_t>(1, k.inner);
    stream.for_each_chunk(k.dy.size() / k.inner * k.count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t first = row / k.count * k.inner;
        const auto n = static_cast<int32_t>(row % k.count);
        const T* dy = k.dy.as<T>() + first;
        const int32_t* places = k.places.as<int32_t>() + first;
        T* dx = k.dx.as<T>() + row * k.inner;
        for (int64_t i = 0; i < k.inner; ++i) dx[i] = places[i] == n ? dy[i] : T{};
      }
    });
  });
}

}  // namespace lockstep
