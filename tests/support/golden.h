// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/safetensors.h"

namespace lockstep {

/// A file of tests/golden. It has the values that PyTorch computed in double precision, and the errors of its
/// own single precision. tests/golden/README.md lists the names.
class Golden {
 public:
  /// Reads a file. `name` has no folder and no extension.
  explicit Golden(const std::string& name) {
    const std::string path = LOCKSTEP_SOURCE_DIR "/tests/golden/" + name + ".safetensors";
    for (const NamedTensor& entry : load_safetensors(path).tensors)
      tensors_.emplace(entry.name, entry.tensor);
  }

  bool contains(const std::string& name) const { return tensors_.contains(name); }

  /// Returns the tensor as it is stored in the file.
  const Tensor& stored(const std::string& name) const {
    const auto found = tensors_.find(name);
    expect(found != tensors_.end(), "the golden file has no ", name);
    return found->second;
  }

  /// Returns a copy of a floating-point tensor in this dtype.
  Tensor tensor(const std::string& name, DType dtype) const {
    const Tensor& from = stored(name);
    if (from.dtype() != dtype) return convert(from, dtype);
    const Tensor result = empty_like(from);
    copy(from, result);
    return result;
  }

  /// Returns the number of names with this prefix.
  int64_t count(const std::string& prefix) const {
    return std::ranges::count_if(tensors_,
                                 [&](const auto& entry) { return entry.first.starts_with(prefix); });
  }

  /// Fails unless `actual` is near the stored values. The bound in single precision is `multiple` times
  /// PyTorch's error, plus two roundings of the largest value. PyTorch's sums have another order. The bound
  /// in f64 is 2^-29 of that, which is the ratio of the two precisions.
  void expect_near(const std::string& name, const Tensor& actual, DType precision) const {
    const Tensor& wanted = stored(name);
    ASSERT_EQ(actual.size(), wanted.size()) << name;
    const std::vector<double> values = to_doubles(actual), truth = to_doubles(wanted);
    const std::vector<double> bounds = rounding_bounds(name, truth);
    const double tolerance = multiple * (precision == DType::f64 ? 0x1p-29 : 1.0);
    size_t worst = 0;
    double worst_ratio = 0.0;
    for (size_t i = 0; i < truth.size(); ++i) {
      const double ratio = std::abs(values[i] - truth[i]) / (tolerance * bounds[i]);
      if (ratio <= worst_ratio) continue;
      worst = i;
      worst_ratio = ratio;
      if (std::isnan(ratio)) break;
    }
    EXPECT_LE(worst_ratio, 1.0) << name << "[" << worst << "] is " << values[worst] << ", PyTorch has "
                                << truth[worst] << "; " << precision << " may differ by "
                                << tolerance * bounds[worst];
  }

 private:
  static constexpr double multiple = 4.0;

  std::vector<double> rounding_bounds(const std::string& name, const std::vector<double>& truth) const {
    if (contains(name + ".bound")) return to_doubles(stored(name + ".bound"));
    double largest = 0.0;
    for (const double value : truth) largest = std::max(largest, std::abs(value));
    const double maximum_error = to_doubles(stored(name + ".error"))[0];
    return std::vector<double>(truth.size(), maximum_error + 2 * 0x1p-24 * largest / multiple);
  }

  std::map<std::string, Tensor> tensors_;
};

}  // namespace lockstep
