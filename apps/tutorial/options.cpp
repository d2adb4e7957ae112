// SPDX-License-Identifier: Apache-2.0
#include "apps/tutorial/options.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/program/command_line.h"
#include "lockstep/program/program.h"

namespace lockstep {
namespace {

std::vector<std::string> words_of(const std::string& choice) {
  std::vector<std::string> words;
  std::istringstream text(choice);
  for (std::string word; std::getline(text, word, '|');) words.push_back(word);
  return words;
}

}  // namespace

Options::Options(int argc, char** argv, const std::string& known) {
  begin_program();
  CommandLine line;
  std::map<std::string, std::string> chosen;
  std::map<std::string, std::vector<std::string>> choices;
  std::istringstream words(known);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::vector<std::string> possible = words_of(word.substr(equals + 1));
    const std::string long_name = name.starts_with("--") ? name : "--" + name;
    std::string dashed = long_name;
    std::replace(dashed.begin(), dashed.end(), '_', '-');
    const std::string position = name == long_name ? "" : name + ",";
    const std::string names = position + long_name + (dashed == long_name ? "" : "," + dashed);
    if (possible.size() > 1) {
      choices[name] = possible;
      line.add(names, chosen[name] = possible.front(), "", {.choices = possible});
      continue;
    }
    int& value = values_[name] = std::stoi(possible.front());
    line.add(names, value, "", {.least = std::min(value, 1)});
  }
  try {
    const std::string answer = line.parse(argc, argv);
    for (const auto& [name, possible] : choices)
      values_[name] = static_cast<int>(std::ranges::find(possible, chosen[name]) - possible.begin());
    if (answer.empty()) return;
    std::cout << answer;
    std::exit(end_program(0));
  } catch (const UserError& problem) {
    log_error(problem.what());
    std::exit(exit_usage);
  }
}

}  // namespace lockstep
