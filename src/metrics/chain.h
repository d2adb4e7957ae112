// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The build and the scope that computed a run from a step on.
struct RunOrigin {
  int64_t step = 0;   ///< steps that were done before
  std::string build;  ///< build_text() of the program
  std::string scope;  ///< scope of bits (train/run_log.h)

  bool operator==(const RunOrigin&) const = default;
};

/// A chain of hashes over what defines a run and over the bits of its losses. A link is the XXH3-64 of the
/// link before, a line feed and a line of text, in hexadecimal. Equal links mean equal histories, unless
/// somebody has searched for a collision: XXH3 is no cryptographic hash.
///
/// | line | when |
/// |---|---|
/// | `settings` and a line for each semantic key | first, after an empty link |
/// | `data` and a line for each artifact | second |
/// | `origin STEP`, the build and the scope, a line each | at the start, and when a resumed run has others |
/// | `step STEP loss BITS` | after each step |
struct RunChain {
  std::string link = {};                ///< empty: a version of this program without chains began the run
  std::vector<RunOrigin> origins = {};  ///< in the order of their steps

  bool operator==(const RunChain&) const = default;

  /// Returns the chain of a run before its first step. The texts are whole lines.
  static RunChain begin(const std::string& settings, const std::string& data);
  /// Adds the origin of the following steps, unless the steps before had the same.
  void enter(const RunOrigin& origin);
  /// Adds a step's loss. Every NaN has the same bits.
  void add(int64_t step, float loss) { add(step, bits_text(loss)); }
  /// Adds a step's loss from bits_text().
  void add(int64_t step, const std::string& loss_bits);

  /// Returns the bits of a loss in hexadecimal. Every NaN becomes quiet_NaN(): processors give NaNs different
  /// signs.
  static std::string bits_text(float loss);

 private:
  void add_line(const std::string& line);
};

}  // namespace lockstep
