// SPDX-License-Identifier: Apache-2.0
#include "lockstep/program/command_line.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <type_traits>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/terminal.h"
#include "lockstep/core/text.h"
#include "lockstep/core/version.h"
#include "lockstep/program/program.h"

namespace lockstep {

CommandLine::CommandLine(const std::string& description) : app_(std::make_unique<CLI::App>(description)) {}

CommandLine::~CommandLine() = default;

template <class Value>
void CommandLine::add(const std::string& names, Value& value, const std::string& help,
                      const OptionRules& rules) {
  CLI::Option& option = *app_->add_option(names, value, help)->required(rules.is_required);
  if constexpr (std::is_same_v<Value, std::vector<std::string>>)
    option.allow_extra_args(rules.takes_several);  // then CLI11 reads "[x]" as a list
  else if constexpr (!std::is_same_v<Value, std::optional<std::string>>)
    option.capture_default_str();
  if (!rules.type.empty()) option.type_name(rules.type);
  if (rules.least)
    option.check(CLI::Validator(
        [least = *rules.least](const std::string& text) {
          using Number = std::conditional_t<std::is_same_v<Value, uint64_t>, uint64_t, int64_t>;
          const std::optional<Number> number = number_in<Number>(without_plus(text));
          const bool is_right = number && std::cmp_greater_equal(*number, least);
          return is_right ? "" : concat("expected a whole number from ", least, " up, not '", text, "'");
        },
        ""));
  if (rules.is_path)
    option.transform(
        [name = option.get_name()](const std::string& text) { return expanded_path(text, name + ": "); });
  if (rules.is_positive) option.check(CLI::PositiveNumber);
  if (!rules.choices.empty()) option.check(CLI::IsMember(rules.choices));
  if (!rules.excludes.empty()) option.excludes(rules.excludes);
}

template void CommandLine::add(const std::string&, std::string&, const std::string&, const OptionRules&);
template void CommandLine::add(const std::string&, std::optional<std::string>&, const std::string&,
                               const OptionRules&);
template void CommandLine::add(const std::string&, int&, const std::string&, const OptionRules&);
template void CommandLine::add(const std::string&, int64_t&, const std::string&, const OptionRules&);
template void CommandLine::add(const std::string&, uint64_t&, const std::string&, const OptionRules&);
template void CommandLine::add(const std::string&, double&, const std::string&, const OptionRules&);
template void CommandLine::add(const std::string&, std::vector<std::string>&, const std::string&,
                               const OptionRules&);

void CommandLine::add_flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

std::string CommandLine::parse(int argc, const char* const* argv) {
  app_->set_version_flag("--version", version_text());
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return wrapped_lines(app_->help(), output_columns());
  } catch (const CLI::CallForVersion&) {
    return app_->version() + "\n";
  } catch (const CLI::ParseError& problem) {
    throw UserError(problem.what());
  }
  return "";
}

std::optional<int> CommandLine::parse_or_say(int argc, const char* const* argv) {
  begin_program();
  try {
    const std::string text = parse(argc, argv);
    if (text.empty()) return std::nullopt;
    std::cout << text;
    return end_program(0);
  } catch (const UserError& problem) {
    std::cerr << problem.what() << "\nRun with --help for more information." << std::endl;
    return exit_usage;
  }
}

void CommandLine::take_from(std::vector<std::string>& arguments, const std::string& program) {
  app_->allow_extras();
  try {
    app_->parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& problem) {
    throw UserError(concat("command line: ", problem.what(), "; see ", program, " --help"));
  }
  arguments = app_->remaining();
}

}  // namespace lockstep
