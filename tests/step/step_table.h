// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <vector>

#include "step/recorded_step.h"

namespace lockstep {

/// Rates of an H100 SXM, from which the bound of a launch follows.
struct Rates {
  double bytes_per_second = 3.35e12;
  double product_flops = 600e12;           ///< assumed; the peak in 16 bits is 989
  double attention_flops = 0.62 * 989e12;  ///< mma.sync reaches about 62 % of the peak
  double flops_of(Part part) const { return part == Part::attention ? attention_flops : product_flops; }
};

/// Equal launches of a step.
struct StepRow {
  StepLaunch launch;
  int count = 0;
  double seconds = 0;  ///< bound of one launch
};

struct StepSum {
  int launches = 0;
  Cost cost = {};
  double seconds = 0;
};

/// The launches of a step with their bounds.
class StepTable {
 public:
  explicit StepTable(const std::vector<StepLaunch>& launches, const Rates& rates = {});

  const std::vector<StepRow>& rows() const { return rows_; }
  const StepSum& sum() const { return sum_; }
  const StepSum& sum_of(Part part) const { return sums_[static_cast<size_t>(part)]; }

 private:
  std::vector<StepRow> rows_;
  std::array<StepSum, parts> sums_ = {};
  StepSum sum_;
};

/// Returns the page docs/kernels/step.md.
std::string step_page(const StepTable& table, const Rates& rates = {});

}  // namespace lockstep
