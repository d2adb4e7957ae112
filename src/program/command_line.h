// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

/// Restrictions of an option's value. --help shows them.
struct OptionRules {
  bool is_required = false;
  std::string type = {};                  ///< the kind of value in --help, such as "FOLDER"
  std::optional<int64_t> least = {};      ///< only whole numbers from this one up are accepted
  bool is_positive = false;               ///< only numbers above 0 are accepted
  bool is_path = false;                   ///< a leading ~/ means HOME
  std::vector<std::string> choices = {};  ///< only these values are accepted, if there are any
  std::string excludes = {};              ///< an option that cannot be combined with this one
  bool takes_several = false;             ///< a vector takes all words up to the next option
};

/// The options of a program, with --help. Names are "--top-k,--top_k", or "epochs,--epochs" for an option
/// that may also be given by its position. Parsing writes the variables.
class CommandLine {
 public:
  explicit CommandLine(const std::string& description = "");
  ~CommandLine();

  /// Adds an option. It writes a std::string, int, int64_t, uint64_t or double, and --help shows the present
  /// value. It may also write a std::optional<std::string> or a std::vector<std::string>. Each use adds one
  /// literal text to a vector.
  template <class Value>
  void add(const std::string& names, Value& value, const std::string& help = "",
           const OptionRules& rules = {});
  void add_flag(const std::string& name, bool& value, const std::string& help = "");

  /// Parses the arguments of main(), with --version. Returns the text to print for --help or --version,
  /// wrapped for the terminal; empty if neither was given. Throws UserError for a wrong command line.
  std::string parse(int argc, const char* const* argv);

  /// Parses as parse() does, and prints the text or the error. Returns the exit code if the program has to
  /// end; nothing otherwise. For programs without a configuration.
  std::optional<int> parse_or_say(int argc, const char* const* argv);

  /// Parses and removes the options it knows from `arguments`. Throws UserError for a wrong value; it names
  /// `program`.
  void take_from(std::vector<std::string>& arguments, const std::string& program);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace lockstep
