// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// A bar with a name, from 0 to `value`.
struct NamedBar {
  std::string name;
  double value = 0;
  std::string text;         ///< the value, for people
  std::string kind = "k1";  ///< its CSS class
};
/// Returns horizontal bars, as HTML.
std::string bars_html(const std::string& title, const std::vector<NamedBar>& bars);

/// A block of a time line.
struct TimelineBlock {
  std::string name;
  std::string kind;  ///< its CSS class
  double begin = 0, end = 0;
};
/// A row of a time line.
struct TimelineRow {
  std::string name;
  std::vector<TimelineBlock> blocks;
};
/// Returns rows over a common time in milliseconds, as HTML.
std::string timeline_html(const std::string& title, double milliseconds,
                          const std::vector<TimelineRow>& rows);

}  // namespace lockstep
