// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/axis.h"

#include <algorithm>
#include <cmath>

#include "lockstep/kernels/elementary.h"

namespace lockstep {
namespace {

/// Returns the ticks of a linear axis: multiples of 1, 2 or 5 times a power of ten.
std::vector<double> linear_ticks(double least, double most, int count) {
  const double rough = (most - least) / count;
  double step = 1;
  while (step > rough) step /= 10;
  while (step * 10 <= rough) step *= 10;
  step *= rough > 5 * step ? 10 : rough > 2 * step ? 5 : rough > step ? 2 : 1;
  const double first = std::floor(least / step), last = std::ceil(most / step);
  std::vector<double> ticks;
  // Doubles that are far from zero may be too coarse for as many ticks.
  for (int i = 0; i <= count + 2 && first + i <= last; ++i) ticks.push_back((first + i) * step);
  return ticks;
}

/// Returns the ticks of a logarithmic axis: fewer in each decade, the more decades there are.
std::vector<double> logarithmic_ticks(double least, double most) {
  const double ratio = most / least;
  const std::vector<double> digits = ratio > 1000 ? std::vector<double>{1}
                                     : ratio > 30 ? std::vector<double>{1, 3}
                                                  : std::vector<double>{1, 2, 5};
  double decade = 1;
  while (decade > least) decade /= 10;
  while (decade * 10 <= least) decade *= 10;
  std::vector<double> ticks;
  while (decade <= most * 10) {
    for (const double digit : digits) ticks.push_back(digit * decade);
    decade *= 10;
  }
  // One tick outside of the values is left on each side.
  while (ticks.size() > 2 && ticks[1] <= least) ticks.erase(ticks.begin());
  while (ticks.size() > 2 && ticks[ticks.size() - 2] >= most) ticks.pop_back();
  const size_t stride = 1 + (ticks.size() - 1) / 7;
  std::vector<double> fewer;
  for (size_t i = 0; i < ticks.size(); i += stride) fewer.push_back(ticks[i]);
  return fewer;
}

}  // namespace

Axis::Axis(double least, double most, bool is_logarithmic, int ticks)
    : least_(least), most_(most), is_logarithmic_(is_logarithmic) {
  if (!(least_ <= most_)) {
    least_ = 0;
    most_ = 1;
  }
  constexpr double least_extent = 1e-30, least_size = 1e-20;
  if (most_ - least_ < least_extent) {
    const double margin = std::abs(least_) < least_size ? 1 : std::abs(least_) / 10;
    least_ -= margin;
    most_ += margin;
  }
  ticks_ = is_logarithmic ? logarithmic_ticks(least_, most_) : linear_ticks(least_, most_, ticks);
}

double Axis::at(double value) const {
  if (!is_logarithmic_) return (value - least_) / (most_ - least_);
  return math::log(value / least_) / math::log(most_ / least_);
}

void Axis::extend_to_ticks() {
  least_ = std::min(least_, ticks_.front());
  most_ = std::max(most_, ticks_.back());
}

double seconds_between_ticks(double seconds, int ticks) {
  for (const double step :
       {0.1,   0.2,    0.5,    1.0,    2.0,    5.0,     10.0,    20.0,    30.0,    60.0,     120.0,   300.0,
        600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0, 21600.0, 43200.0, 86400.0, 172800.0, 604800.0})
    if (seconds / step <= ticks) return step;
  double step = 2'592'000.0;
  while (seconds / step > ticks) step *= 2;
  return step;
}

}  // namespace lockstep
