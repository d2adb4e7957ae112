// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/series.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

void merge(Bin& bin, const Bin& other) {
  if (other.values > 0) {
    bin.least = bin.values > 0 ? std::min(bin.least, other.least) : other.least;
    bin.most = bin.values > 0 ? std::max(bin.most, other.most) : other.most;
  }
  bin.x_sum += other.x_sum;
  bin.sum += other.sum;
  bin.values += other.values;
  bin.missing += other.missing;
}

}  // namespace

void Series::add(double x, double y) {
  const bool is_finite = std::isfinite(y);
  const Bin one{.x_sum = x,
                .sum = is_finite ? y : 0,
                .least = is_finite ? y : 0,
                .most = is_finite ? y : 0,
                .values = is_finite ? 1 : 0,
                .missing = is_finite ? 0 : 1};
  if (!bins_.empty() && bins_.back().count() < width_) return merge(bins_.back(), one);
  if (bins_.size() == most_bins_) {
    halve();
    return add(x, y);
  }
  bins_.push_back(one);
}

/// Merges pairs of bins. With an odd number of bins, the last one gets its other half later.
void Series::halve() {
  std::vector<Bin> halved;
  for (size_t i = 0; i < bins_.size(); i += 2) {
    halved.push_back(bins_[i]);
    if (i + 1 < bins_.size()) merge(halved.back(), bins_[i + 1]);
  }
  bins_ = std::move(halved);
  width_ *= 2;
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return 0;
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep
