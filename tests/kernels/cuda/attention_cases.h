// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/values.h"
#include "lockstep/kernels/attention.h"
#include "support/cuda.h"

namespace lockstep::testing {

struct Case {
  int64_t batch, time, heads, size;
  double dropout = 0;
  int64_t key_heads = 0;  ///< 0: as many as heads
  bool apart = false;     ///< queries are not in one array with keys and values

  AttentionHeads all_heads() const { return {heads, key_heads > 0 ? key_heads : heads}; }
  Shape plain() const { return {batch, time, heads * size}; }
  Shape packed() const { return {batch, time, all_heads().packed() * size}; }
};

inline constexpr RandomKey random_key{.seed = 0x123456789abcdefull, .step = 7, .sample = 41, .site = 3};

/// Queries, keys and values in GPU memory, as packed numbers on the host. They are in one array. Or queries
/// have an array of their own, and the rows of keys and values have eight more columns, which stay NaN.
class DeviceHeads {
 public:
  DeviceHeads(const Case& c, DType dtype)
      : case_(c), columns_{c.heads * c.size, 2 * c.all_heads().keys * c.size} {
    if (c.apart)
      for (const int64_t columns : {columns_[0], columns_[1] + 8})
        arrays_.emplace_back(c.plain().with_last(columns), dtype);
    else
      arrays_.emplace_back(c.packed(), dtype);
  }
  DeviceHeads(const std::vector<double>& packed, const Case& c, DType dtype) : DeviceHeads(c, dtype) {
    for (DeviceArray& array : arrays_) {
      std::vector<double> numbers = array.values();
      for_each_element([&](size_t i, size_t of, size_t at) {
        if (&arrays_[of] == &array) numbers[at] = packed[i];
      });
      array = DeviceArray(numbers, array.view().shape, dtype);
    }
  }

  QueryKeyValue view() const {
    if (!case_.apart) return unpack_heads(arrays_[0].view(), case_.all_heads());
    const View keys_and_values = arrays_[1].view();
    return {.q = arrays_[0].view(),
            .k = columns_of(keys_and_values, 0, columns_[1] / 2),
            .v = columns_of(keys_and_values, columns_[1] / 2, columns_[1] / 2)};
  }

  /// Returns the packed numbers. Throws Error if one of the columns between them is no longer NaN.
  std::vector<double> values() const {
    std::vector<double> packed(static_cast<size_t>(case_.packed().elements()));
    std::vector<std::vector<double>> stored;
    for (const DeviceArray& array : arrays_) stored.push_back(array.values());
    for_each_element([&](size_t i, size_t of, size_t at) { packed[i] = std::exchange(stored[of][at], NAN); });
    for (const auto& array : stored)
      for (const double value : array) expect(std::isnan(value), "a column between others was overwritten");
    return packed;
  }
  std::vector<uint8_t> bits() const {
    std::vector<uint8_t> all;
    for (const DeviceArray& array : arrays_)
      for (const uint8_t byte : array.bits()) all.push_back(byte);
    return all;
  }

 private:
  /// Calls body(i, array, j) for each packed element i, which is element j of an array.
  template <class Body>
  void for_each_element(const Body& body) const {
    const int64_t columns = columns_[0] + columns_[1];
    for (int64_t i = 0; i < case_.packed().elements(); ++i) {
      const int64_t row = i / columns, column = i % columns;
      const bool is_query = column < columns_[0];
      const int64_t at = !case_.apart ? i
                         : is_query   ? row * columns_[0] + column
                                      : row * (columns_[1] + 8) + column - columns_[0];
      body(static_cast<size_t>(i), static_cast<size_t>(case_.apart && !is_query), static_cast<size_t>(at));
    }
  }

  Case case_;
  int64_t columns_[2];
  std::vector<DeviceArray> arrays_;
};

/// Both directions of one call. Its GPU inputs are exact on the CPU too.
struct OnDevice {
  OnDevice(const Case& c, DType in, double spread = 1.0)
      : shape(c),
        dtype(in),
        packed(c.packed()),
        plain(c.plain()),
        qkv(normal_values(packed.elements(), 1, in, spread)),
        dy(normal_values(plain.elements(), 2, in)) {}

  struct Result {
    std::vector<uint8_t> y, log_sum_exp, dqkv, dqkv_sum;
    bool operator==(const Result&) const = default;
  };

  CausalAttentionForward forward(const DeviceHeads& in, const DeviceArray& out, const DeviceArray& statistics,
                                 int64_t first_query = 0) const {
    return {.qkv = in.view(),
            .y = out.view(),
            .log_sum_exp = statistics.view(),
            .heads = shape.all_heads(),
            .dropout = shape.dropout,
            .key = key,
            .first_query = first_query};
  }

  /// Runs the forward from query `first_query` on. Its results are in y and log_sum_exp.
  void run_from(int64_t first_query) {
    const DeviceHeads device_qkv(qkv, shape, dtype);
    const DeviceArray device_y(plain, dtype);
    const DeviceArray statistics({shape.batch, shape.heads, shape.time}, DType::f32);
    launch(gpu_stream(), forward(device_qkv, device_y, statistics, first_query));
    y = device_y.values();
    log_sum_exp = statistics.values();
  }

  /// Runs both directions. Their results are in y, log_sum_exp, dqkv and dqkv_sum.
  Result run() {
    const DeviceHeads device_qkv(qkv, shape, dtype), device_dqkv(shape, dtype);
    const DeviceArray device_dy(dy, plain, dtype), device_y(plain, dtype), sums({packed[2]}, DType::f32);
    const DeviceArray statistics({shape.batch, shape.heads, shape.time}, DType::f32);
    launch(gpu_stream(), forward(device_qkv, device_y, statistics));
    launch(gpu_stream(), CausalAttentionBackward{.qkv = device_qkv.view(),
                                                 .y = device_y.view(),
                                                 .log_sum_exp = statistics.view(),
                                                 .dy = device_dy.view(),
                                                 .dqkv = device_dqkv.view(),
                                                 .dqkv_sum = shape.apart ? View{} : sums.view(),
                                                 .heads = shape.all_heads(),
                                                 .dropout = shape.dropout,
                                                 .key = key});
    y = device_y.values();
    log_sum_exp = statistics.values();
    dqkv = device_dqkv.values();
    dqkv_sum = sums.values();
    return {device_y.bits(), statistics.bits(), device_dqkv.bits(), sums.bits()};
  }

  Case shape;
  DType dtype;
  RandomKey key = random_key;
  Shape packed, plain;
  std::vector<double> qkv, dy;
  std::vector<double> y, log_sum_exp, dqkv, dqkv_sum;
};

/// The results on the CPU in f64, from the same numbers and with the same mask.
struct Reference {
  explicit Reference(const OnDevice& o) : y(run(o)[0]), log_sum_exp(results[1]), dqkv(results[2]) {}

  std::vector<std::vector<double>> results;
  std::vector<double> y, log_sum_exp, dqkv;

 private:
  static Values values(const Shape& shape, const std::vector<double>& numbers) {
    Values to(shape, DType::f64);
    for (int64_t i = 0; i < to.size(); ++i) to.set(i, numbers[static_cast<size_t>(i)]);
    return to;
  }
  static std::vector<double> numbers(const Values& from) {
    std::vector<double> to;
    for (int64_t i = 0; i < from.size(); ++i) to.push_back(from[i]);
    return to;
  }
  std::vector<std::vector<double>>& run(const OnDevice& o) {
    Values qkv = values(o.packed, o.qkv), dy = values(o.plain, o.dy);
    Values y64(o.plain, DType::f64), dqkv64(o.packed, DType::f64);
    Values log_sum({o.shape.batch, o.shape.heads, o.shape.time}, DType::f64);
    launch_on(1, CausalAttentionForward{.qkv = unpack_heads(qkv.view(), o.shape.all_heads()),
                                        .y = y64.view(),
                                        .log_sum_exp = log_sum.view(),
                                        .heads = o.shape.all_heads(),
                                        .dropout = o.shape.dropout,
                                        .key = o.key});
    launch_on(1, CausalAttentionBackward{.qkv = unpack_heads(qkv.view(), o.shape.all_heads()),
                                         .y = y64.view(),
                                         .log_sum_exp = log_sum.view(),
                                         .dy = dy.view(),
                                         .dqkv = unpack_heads(dqkv64.view(), o.shape.all_heads()),
                                         .heads = o.shape.all_heads(),
                                         .dropout = o.shape.dropout,
                                         .key = o.key});
    results = {numbers(y64), numbers(log_sum), numbers(dqkv64)};
    return results;
  }
};

/// Returns the columns of the queries (part 0), keys (part 1) or values (part 2).
inline std::vector<double> part_of(const std::vector<double>& packed, const Case& c, int64_t part) {
  const AttentionHeads heads = c.all_heads();
  std::vector<double> chosen;
  for (size_t i = 0; i < packed.size(); ++i) {
    const int64_t head = static_cast<int64_t>(i) / c.size % heads.packed();
    if ((head < heads.queries ? 0 : 1 + (head - heads.queries) / heads.keys) == part)
      chosen.push_back(packed[i]);
  }
  return chosen;
}

inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::fabs(a[i] - b[i]));
  }
  return largest;
}

/// Returns the bound on relative errors in the L2 norm. A rounding to 16 bits errs by at most eps / 2, evenly
/// spread. In the mean square that is eps / (2 sqrt(3)). No result has more than three roundings: of the
/// weights or the gradients of scores, of the y that these are computed from, and of itself. Together they
/// make eps / 2. In fp32 sums of up to 260 products err by about 2^-24 sqrt(260) = 1e-6. Scores of order ten
/// add as much to the weights, and a result has a few such errors.
inline double tolerance_of(DType dtype) { return dtype == DType::f32 ? 5e-6 : epsilon_of(dtype) / 2; }

/// Expects the sums of the columns of dqkv as it was stored. A sum of n terms in fp32 errs by at most n 2^-24
/// of the sum of their magnitudes.
inline void expect_column_sums(const OnDevice& o) {
  const auto columns = static_cast<size_t>(o.packed[2]);
  const size_t rows = o.dqkv.size() / columns;
  for (size_t column = 0; column < columns; ++column) {
    double sum = 0, magnitudes = 0;
    for (size_t row = 0; row < rows; ++row) {
      sum += o.dqkv[row * columns + column];
      magnitudes += std::fabs(o.dqkv[row * columns + column]);
    }
    ASSERT_NEAR(o.dqkv_sum[column], sum, static_cast<double>(rows) * 0x1p-24 * magnitudes) << column;
  }
}

inline void expect_matches(const Case& c, DType dtype) {
  SCOPED_TRACE(concat(dtype, " time ", c.time, " heads ", c.heads, " over ", c.all_heads().keys,
                      c.apart ? " apart" : "", " size ", c.size, " dropout ", c.dropout));
  OnDevice o(c, dtype);
  o.run();
  const Reference reference(o);
  if (!c.apart) expect_column_sums(o);
  EXPECT_LE(largest_difference(o.log_sum_exp, reference.log_sum_exp), 1e-5);
  EXPECT_LE(relative_error(o.y, reference.y), tolerance_of(dtype));
  for (int64_t part = 0; part < 3; ++part) {
    const auto actual = part_of(o.dqkv, c, part), expected = part_of(reference.dqkv, c, part);
    EXPECT_LE(relative_error(actual, expected), tolerance_of(dtype)) << "gradient of "
                                                                     << "qkv"[part];
  }
}

inline const std::vector<DType> gpu_dtypes = {DType::f32, DType::bf16, DType::f16};

}  // namespace lockstep::testing
