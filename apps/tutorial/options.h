// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace lockstep {

/// The command-line options of the tutorial's programs: whole numbers from 1 up, or from a lower default.
/// `known` lists names and defaults, "total_epochs=50 --batch_size=32". A name without dashes can be given by
/// position. "--shard=none|full" accepts these words; its value is the index of the word, by default 0. Ends
/// the program after --help (code 0) and after a mistake (code 2).
class Options {
 public:
  Options(int argc, char** argv, const std::string& known);

  int operator[](const std::string& name) const { return values_.at(name); }

 private:
  std::map<std::string, int> values_;
};

}  // namespace lockstep
