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

/// An option of a command line. Its methods restrict the value and describe it in --help.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option& option) : option_(&option) {}

  CommandOption& required();
  /// Shows the variable's present value in --help as the default.
  CommandOption& shows_default();
  /// Names the kind of value in --help, such as "FOLDER".
  CommandOption& type_name(const std::string& name);
  /// Takes one value each time the option is given, literally. For lists of texts.
  CommandOption& one_at_a_time();
  /// Accepts only whole numbers from `least` up.
  CommandOption& whole_from(int64_t least);
  CommandOption& positive();
  CommandOption& one_of(const std::vector<std::string>& values);
  /// Refuses a command line that has both options.
  CommandOption& excludes(const CommandOption& other);

 private:
  CLI::Option* option_;
};

/// The options of a program, with --help. Names are "--top-k,--top_k", or "epochs,--epochs" for an option
/// that may also be given by its position. Parsing writes the variables.
class CommandLine {
 public:
  explicit CommandLine(const std::string& description = "");
  ~CommandLine();

  /// Adds an option whose value is a std::string, int, int64_t, uint64_t, double or std::vector<std::string>.
  template <class Value>
  CommandOption add(const std::string& names, Value& value, const std::string& help = "");
  void add_flag(const std::string& name, bool& value, const std::string& help = "");

  /// Parses the arguments of main(), with --version. Returns the text to print for --help or --version,
  /// wrapped for the terminal; empty if neither was given. Throws UserError for a wrong command line.
  std::string parse(int argc, const char* const* argv);

  /// Parses as parse() does, and prints the text or the error. Returns the exit code if the program has to
  /// end; nothing otherwise. For programs without a configuration.
  std::optional<int> parse_or_say(int argc, const char* const* argv);

  /// Parses and removes the options it knows from `arguments.other`. Throws UserError for a wrong value.
  void take_from(Arguments& arguments);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace lockstep
