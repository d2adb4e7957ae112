// SPDX-License-Identifier: Apache-2.0
// The command lines of train_gpt and lockrun, one argument a line.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "lockstep/core/text.h"
#include "lockstep/elastic/launch_options.h"
#include "lockstep/job/load_job.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  std::vector<std::string> arguments(1);
  for (const char c : fuzz::text_of(data, bytes))
    if (c == '\n')
      arguments.emplace_back();
    else if (c != '\0')
      arguments.back() += c;
  if (arguments[0] == "lockrun") {
    arguments.erase(arguments.begin());
    const bool prints = std::ranges::any_of(arguments, [](const std::string& argument) {
      return argument.find("h") != std::string::npos || argument.find("v") != std::string::npos;
    });
    if (!prints) fuzz::accepts([&] { parse_launch_options(arguments); });
    return 0;
  }
  std::vector<const char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  fuzz::accepts([&] {
    const Arguments split = split_arguments(static_cast<int>(pointers.size()), pointers.data());
    // A file of the machine is no part of the input.
    if (split.config_file.empty()) to_ini(load_settings(split));
  });
  return 0;
}
