// SPDX-License-Identifier: Apache-2.0
#include "apps/tutorial/options.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <sstream>

#include "config/command_line.h"
#include "core/error.h"
#include "core/exit_code.h"
#include "core/log.h"

namespace lockstep {

Options::Options(int argc, char** argv, const std::string& known) {
  CommandLine line;
  std::istringstream words(known);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    int& value = values_[name] = std::stoi(word.substr(equals + 1));
    const std::string long_name = name.starts_with("--") ? name : "--" + name;
    std::string dashed = long_name;
    std::replace(dashed.begin(), dashed.end(), '_', '-');
    const std::string position = name == long_name ? "" : name + ",";
    line.add(position + long_name + (dashed == long_name ? "" : "," + dashed), value)
        .in_range(std::min(value, 1), std::numeric_limits<int>::max())
        .shows_default();
  }
  try {
    const std::string answer = line.parse(argc, argv);
    if (answer.empty()) return;
    std::cout << answer;
    std::exit(0);
  } catch (const UserError& problem) {
    log_error(problem.what());
    std::exit(exit_usage);
  }
}

}  // namespace lockstep
