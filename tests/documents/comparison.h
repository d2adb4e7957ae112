// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::documents {

/// How much of a printed line counts, besides what varies from run to run and never does.
enum class Exactness {
  digits,     ///< every digit
  fractions,  ///< numbers with a fraction and hashes by their shape: to find the lines of an earlier output
  numbers,    ///< all numbers by their shape: of a run that was shortened
};

/// The line with marks for what does not count. Seconds, rates, process numbers, hosts, processors, the
/// memory of kernels, free space, paths below /tmp and dates never count. comparison.cpp has the list.
std::string normalised(const std::string& line, Exactness exactness);

/// How the lines that a document shows meet those that were printed.
struct Match {
  static constexpr size_t nowhere = static_cast<size_t>(-1);

  bool is_equal = false;
  size_t difference = nowhere;  ///< the first shown line that was not found; their number if there is more
  std::vector<size_t> places;   ///< of each shown line among the printed ones
};

/// A shown line "..." stands for any lines. Progress by the clock ("step 3/9  loss ...") is left out of both.
/// Lines of a rank ("[CPU1] ...") may come in any order; where there is a "..." some may be missing.
Match compare(const std::vector<std::string>& shown, const std::vector<std::string>& printed,
              Exactness exactness);

/// Whether a shown line stands for any lines.
bool is_skip(const std::string& line);

}  // namespace lockstep::documents
