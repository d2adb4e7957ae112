// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Some neighbouring values of a series.
struct Bin {
  double x_sum = 0;
  double sum = 0;  ///< of the finite values
  double least = 0, most = 0;
  int64_t values = 0;   ///< finite ones
  int64_t missing = 0;  ///< values that are not finite

  int64_t count() const { return values + missing; }
  double x() const { return x_sum / static_cast<double>(count()); }
  double mean() const { return sum / static_cast<double>(values); }
};

/// A series of any length, which keeps a bounded number of bins. All bins but the last have the same number
/// of values. So the bins depend on the values alone, and a short series has a bin for each value.
class Series {
 public:
  /// Keeps more than `most_bins` / 2 bins of a long series.
  explicit Series(size_t most_bins) : most_bins_(most_bins) {}

  /// Appends a value. NaN and infinity count as missing.
  void add(double x, double y);

  const std::vector<Bin>& bins() const { return bins_; }
  bool empty() const { return bins_.empty(); }
  /// Returns whether a bin has several values, of which a chart shows the range.
  bool is_condensed() const { return width_ > 1; }

 private:
  void halve();

  size_t most_bins_;
  int64_t width_ = 1;  ///< values of a whole bin
  std::vector<Bin> bins_;
};

/// Returns the value in the middle of the finite ones; the lower of two. 0 if there is none.
double median(std::vector<double> values);

}  // namespace lockstep
