// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
class Option;
}  // namespace CLI

namespace lockstep {

struct Arguments;

/// One option of a command line: what its value must be, and what --help says about it.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option& option) : option_(&option) {}

  CommandOption& required();
  /// Shows in --help the value that the variable has now.
  CommandOption& shows_default();
  /// Takes `name`, "FOLDER", for what the value is in --help.
  CommandOption& type_name(const std::string& name);
  /// Of texts: one value each time the option is given, taken as it is.
  CommandOption& one_at_a_time();
  /// Refuses what is no whole number from `least` up.
  CommandOption& whole_from(int64_t least);
  CommandOption& positive();
  CommandOption& not_negative();
  CommandOption& in_range(int least, int most);
  CommandOption& one_of(const std::vector<std::string>& values);
  /// Refuses both of them at once.
  CommandOption& excludes(const CommandOption& other);

 private:
  CLI::Option* option_;
};

/// The options of a program, with --help. Names are "--top-k,--top_k", or "epochs,--epochs" for one that is
/// also taken by its position. Variables are written when the command line is parsed.
class CommandLine {
 public:
  explicit CommandLine(const std::string& description = "");
  ~CommandLine();

  CommandOption add(const std::string& names, std::string& value, const std::string& help = "");
  CommandOption add(const std::string& names, int& value, const std::string& help = "");
  CommandOption add(const std::string& names, int64_t& value, const std::string& help = "");
  CommandOption add(const std::string& names, uint64_t& value, const std::string& help = "");
  CommandOption add(const std::string& names, double& value, const std::string& help = "");
  CommandOption add(const std::string& names, std::vector<std::string>& values, const std::string& help = "");
  void add_flag(const std::string& name, bool& value, const std::string& help = "");

  /// Parses the arguments of main(), with --version. Returns what --help or --version is answered with; empty
  /// if neither was there. Throws UserError that says what is wrong.
  std::string parse(int argc, const char* const* argv);

  /// The same for a program without a configuration, whose answer or error is printed. Returns the exit code
  /// if there is nothing left to do.
  std::optional<int> parse_or_say(int argc, const char* const* argv);

  /// Takes what it knows out of what a configuration does not know, and leaves the rest there. Throws
  /// UserError.
  void take_from(Arguments& arguments);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace lockstep
