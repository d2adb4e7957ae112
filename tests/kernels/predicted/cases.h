// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/core/stream.h"
#include "lockstep/kernels/kernel.h"
#include "lockstep/kernels/random.h"
#include "lockstep/kernels/view.h"

// Launches of every kernel of the project's own, whose results have predicted bits. An exact build computes
// them on a GPU or in the emulator.

namespace lockstep::predicted {

/// The arrays of one case in GPU memory. Their contents depend only on the order in which they are made. Each
/// begins `shift` elements past an aligned address.
class Arrays {
 public:
  explicit Arrays(const Stream& stream, int64_t shift = 0) : stream_(stream), shift_(shift) {}
  const Stream& stream() const { return stream_; }

  /// Returns numbers of both signs below `scale`, which span eight binades, rounded to the dtype.
  View input(const Shape& shape, DType dtype, double scale = 1.0);
  /// Returns numbers in [scale / 256, scale).
  View positive(const Shape& shape, DType dtype, double scale = 1.0);
  /// Returns whole numbers from -2 to 2. Sums of their products are exact in any order.
  View whole(const Shape& shape, DType dtype);
  /// Returns i32 numbers in [0, below).
  View ids(const Shape& shape, int32_t below);
  /// Returns one number of the dtype.
  View number(double value, DType dtype);
  View integers(const std::vector<int32_t>& values);

  /// Returns memory that the case writes. It is part of the result.
  View output(const Shape& shape, DType dtype);
  /// Makes an input part of the result: the case overwrites or updates it.
  View updated(const View& view);

  /// Returns the XXH3-64 of the results, in the order in which they were named. Throws Error if a result has
  /// a NaN, because its bits are not specified.
  uint64_t hash() const;

 private:
  View make(const Shape& shape, DType dtype, const std::function<double(uint32_t word)>& value);

  Stream stream_;
  int64_t shift_;
  uint32_t made_ = 0;
  std::vector<std::shared_ptr<std::byte>> memory_;
  std::vector<View> results_;
};

struct Case {
  std::string kernel;  ///< the contract's name
  DType dtype;
  std::string name;  ///< unique for a kernel and a dtype
  std::function<void(Arrays&)> run;

  /// Returns whether its arrays may begin at any element. The results have the same bits then.
  bool takes_any_address() const;
};
using Cases = std::vector<Case>;

/// Appends a case that launches one kernel. `contract(arrays)` makes it.
template <class Contract>
void add(Cases& cases, DType dtype, const std::string& name, Contract contract) {
  using K = std::invoke_result_t<Contract, Arrays&>;
  cases.push_back(
      {K::name, dtype, name, [contract](Arrays& arrays) { launch(arrays.stream(), contract(arrays)); }});
}

/// Returns a shape as text without commas, such as "5x40".
std::string extents(const Shape& shape);

/// A key of random draws for kernels with dropout.
inline constexpr RandomKey some_key{.seed = 0x123456789abcdef, .step = 11, .sample = 40, .site = 7};
inline constexpr DType float_dtypes[] = {DType::f32, DType::bf16, DType::f16};

Cases attention_cases();
Cases element_cases();
Cases product_cases();
Cases row_cases();
Cases sum_cases();
Cases update_cases();

/// Returns all cases, sorted by kernel, dtype and name.
Cases all_cases();

}  // namespace lockstep::predicted
