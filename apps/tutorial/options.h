// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace lockstep {

/// What the steps of the tutorial take from the command line: whole numbers from 1 up, or from their default
/// if that is less. `known` lists names and defaults, "total_epochs=50 --batch_size=32"; a name without
/// dashes is taken by position or as --name. "--shard=none|full" takes one of these words, of which the first
/// is the default, and its place among them is the number. Ends the program after --help (code 0) and after a
/// mistake (code 2).
class Options {
 public:
  Options(int argc, char** argv, const std::string& known);

  int operator[](const std::string& name) const { return values_.at(name); }

 private:
  std::map<std::string, int> values_;
};

}  // namespace lockstep
