// SPDX-License-Identifier: Apache-2.0
// Many small programs in one executable, which compiles and links in the time of two programs. The name of
// the link that starts it selects the program.
#include <filesystem>
#include <iostream>
#include <string>

#include "apps/tutorial/exercises/exercise.h"
#include "lockstep/data/sampler.h"

// CMake writes this file. Every program is in its own namespace. `programs` lists names and functions.
#include ALL_PROGRAMS

int main(int argc, char** argv) {
  const std::string name = std::filesystem::path(argv[0]).filename();
  for (const auto& [known, run] : programs)
    if (name == known) return run(argc, argv);
  std::cerr << "error: there is no program " << name << " in this file: start a link to it\n";
  return 2;
}
