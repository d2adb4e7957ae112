// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/job/keys.h"

namespace lockstep {

/// The arguments of main(), with the keys taken out.
struct Overrides {
  SettingLayer settings;               ///< section.key=value
  std::vector<const char*> arguments;  ///< the others, in order; the first is the program

  int argc() const { return static_cast<int>(arguments.size()); }
  const char* const* argv() const { return arguments.data(); }
};

/// Takes arguments section.key=value that set a key of a training out of the others.
Overrides take_overrides(int argc, const char* const* argv);

}  // namespace lockstep
