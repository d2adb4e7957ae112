// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/report/series.h"

namespace lockstep {

/// A line of a chart.
struct ChartLine {
  std::string name;
  size_t style = 0;  ///< its colour and dashes
  const Series* series = nullptr;
  bool has_dots = false;  ///< a dot for each value
  bool has_band = true;   ///< the range of the values of each bin
};

/// A moment of a chart, drawn as a vertical line.
struct ChartMark {
  double x = 0;
  std::string kind;  ///< the end of its CSS class: "failure", "snapshot"
  std::string title;
};

/// What the numbers of the x axis are.
enum class ChartX { steps, time };

/// A chart of lines over steps from 0, or over the seconds since `x_begin`.
struct Chart {
  std::string title;
  std::string unit = {};
  ChartX over = ChartX::steps;
  double x_begin = 0;
  double x_most = 0;  ///< the end of the x axis, unless a value is beyond it
  std::vector<ChartLine> lines = {};
  std::vector<ChartMark> marks = {};
  bool is_logarithmic_if_wide = false;  ///< if the largest value is far above the smallest, which is positive
  bool begins_at_zero = false;
  bool is_tall = false;

  /// Returns whether a line has a value to draw.
  bool has_values() const;
  std::string html() const;
};

/// Returns the key of the lines: a sample and a name each, as HTML.
std::string chart_key(const std::vector<ChartLine>& lines);
/// Returns a sample of a line of this style, as HTML.
std::string line_sample(size_t style);

}  // namespace lockstep
