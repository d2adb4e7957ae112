// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <sstream>
#include <string>

#include "core/log.h"
#include "core/version.h"

namespace lockstep {

/// What the steps of the tutorial take from the command line: whole numbers from 1 up, or from their default
/// if that is less. `known` lists names and defaults, "total_epochs=50 --batch_size=32"; a name without
/// dashes is taken by position or as --name. Ends the program after --help (code 0) and after a mistake (code
/// 2).
class Options {
 public:
  Options(int argc, char** argv, const std::string& known) {
    CLI::App app;
    std::istringstream words(known);
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      const std::string name = word.substr(0, equals);
      int& value = values_[name] = std::stoi(word.substr(equals + 1));
      const std::string long_name = name.starts_with("--") ? name : "--" + name;
      std::string dashed = long_name;
      std::replace(dashed.begin(), dashed.end(), '_', '-');
      const std::string position = name == long_name ? "" : name + ",";
      app.add_option(position + long_name + (dashed == long_name ? "" : "," + dashed), value)
          ->check(CLI::Range(std::min(value, 1), largest))
          ->capture_default_str();
    }
    app.set_version_flag("--version", version_text());
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& question) {
      std::exit(app.exit(question));
    } catch (const CLI::ParseError& problem) {
      log_error(problem.what());
      std::exit(2);
    }
  }

  int operator[](const std::string& name) const { return values_.at(name); }

 private:
  static constexpr int largest = std::numeric_limits<int>::max();

  std::map<std::string, int> values_;
};

}  // namespace lockstep
