// SPDX-License-Identifier: Apache-2.0
#include "lockstep/job/overrides.h"

#include "lockstep/core/error.h"

namespace lockstep {

std::string Overrides::parse_by(CommandLine& line) const {
  std::vector<const char*> all;
  for (const std::string& argument : arguments) all.push_back(argument.c_str());
  return line.parse(static_cast<int>(all.size()), all.data());
}

Overrides take_overrides(int argc, const char* const* argv) {
  Arguments split = split_arguments(argc, argv);
  require(split.config_file.empty() && !split.plan && !split.print_config, "command line: ", split.program,
          " has no --config, --plan and --print-config: it reads the settings of the run");
  Overrides overrides{.settings = split.overrides, .arguments = {argv[0]}};
  for (const std::string& other : split.other) overrides.arguments.push_back(other);
  if (split.help) overrides.arguments.emplace_back("--help");
  if (split.version) overrides.arguments.emplace_back("--version");
  return overrides;
}

}  // namespace lockstep
