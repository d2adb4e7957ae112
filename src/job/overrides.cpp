// SPDX-License-Identifier: Apache-2.0
#include "lockstep/job/overrides.h"

#include <string>

#include "lockstep/job/keys.h"

namespace lockstep {

Overrides take_overrides(int argc, const char* const* argv) {
  Overrides overrides;
  for (int i = 0; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    if (i > 0 && equals != std::string::npos && job_keys().known(name) != nullptr)
      overrides.settings.push_back({name, argument.substr(equals + 1)});
    else
      overrides.arguments.push_back(argv[i]);
  }
  return overrides;
}

}  // namespace lockstep
