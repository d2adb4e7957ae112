// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/report/run_files.h"

namespace lockstep {

/// Kinds of facts in which runs differ, in the order of a report.
enum class FactKind {
  semantic,  ///< a key that fixes the bits of a run
  data,      ///< a hash of the data
  build,     ///< the program, its build, its scope of bits, ranks
  other,     ///< any other key
  count
};

/// A fact with another value in at least one run.
struct Difference {
  FactKind kind = FactKind::other;
  std::string name;
  std::vector<std::string> values = {};  ///< of each run; empty: not known
};

/// Returns the facts in which runs differ, by kind and name. log.dir is not one: the runs' names show it. A
/// key that a run's version did not have counts with its value of that time. A run without any facts of a
/// kind, such as without config.ini, does not differ in them.
std::vector<Difference> differences_between(const std::vector<RunFiles>& runs);

}  // namespace lockstep
