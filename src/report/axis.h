// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace lockstep {

/// An axis from values to the range from 0 to 1.
class Axis {
 public:
  /// Makes an axis from `least` to `most` with about `ticks` ticks. A logarithmic one has values above 0.
  Axis(double least, double most, bool is_logarithmic, int ticks);

  double at(double value) const;
  double least() const { return least_; }
  double most() const { return most_; }
  bool is_logarithmic() const { return is_logarithmic_; }
  const std::vector<double>& ticks() const { return ticks_; }
  /// Makes the axis end at its outer ticks.
  void extend_to_ticks();

 private:
  double least_, most_;
  bool is_logarithmic_;
  std::vector<double> ticks_;
};

/// Returns the seconds between ticks of an axis of time with at most `ticks` of them.
double seconds_between_ticks(double seconds, int ticks);

}  // namespace lockstep
