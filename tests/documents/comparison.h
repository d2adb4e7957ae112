// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::documents {

/// The parts of a line that a comparison checks. Values that vary from run to run are never checked.
enum class Exactness {
  digits,     ///< compares every digit
  fractions,  ///< ignores the values of fractions and hashes; finds the lines of an earlier output again
  numbers,    ///< ignores the values of all numbers; for a shortened run
};

/// Returns the line with a mark in place of each ignored value. Always ignored are seconds, rates, dates,
/// process numbers, hosts, processors, the memory of kernels, free space and paths below /tmp. comparison.cpp
/// has the list.
std::string normalised(const std::string& line, Exactness exactness);

/// The result of comparing a document's shown lines with the printed lines.
struct Match {
  static constexpr size_t nowhere = static_cast<size_t>(-1);

  bool is_equal = false;
  size_t difference =
      nowhere;  ///< first shown line that was not found; if more was printed, the number of lines
  std::vector<size_t> places;  ///< index of the printed line that matches each shown line
};

/// Compares the shown lines with the printed lines. A shown line "..." matches any lines. Both sides are
/// compared without timed progress lines ("step 3/9  loss ..."). Lines of a rank ("[CPU1] ...") may be in any
/// order. Some of them may be missing if a "..." is shown.
Match compare(const std::vector<std::string>& shown, const std::vector<std::string>& printed,
              Exactness exactness);

/// Returns true for a line "...", which matches any lines.
bool is_skip(const std::string& line);

}  // namespace lockstep::documents
