// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/job/keys.h"
#include "lockstep/program/command_line.h"

namespace lockstep {

/// The arguments of main(), with the keys taken out.
struct Overrides {
  SettingLayer settings;               ///< in any spelling that split_arguments() reads
  std::vector<std::string> arguments;  ///< the others, in order; the first is the program

  /// Parses the others by `line`. Returns the text to print for --help or --version, or an empty text. Throws
  /// UserError for a wrong command line.
  std::string parse_by(CommandLine& line) const;
};

/// Takes the keys of a training out of the arguments. Throws UserError for an option that only trainings
/// have.
Overrides take_overrides(int argc, const char* const* argv);

}  // namespace lockstep
