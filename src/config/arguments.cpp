// SPDX-License-Identifier: Apache-2.0
#include "lockstep/config/arguments.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

/// Returns the name with _ instead of -; options accept both.
std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// Returns true for "section.key" in lower case, the spelling of every key.
bool is_key_like(const std::string& text) {
  const size_t dot = text.find('.');
  const bool has_both_parts = dot != std::string::npos && dot > 0 && dot + 1 < text.size();
  return has_both_parts &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") == std::string::npos;
}

/// Returns the option that `name` without dashes resembles: --config for "config-name", "confg", "c"; or "".
std::string nearest_option(const std::string& name) {
  for (const std::string option : {"config", "help", "version", "print-config", "plan", "fresh"}) {
    const bool is_part = name.size() == 1 ? option.starts_with(name) : name.starts_with(option);
    if (is_part || slips_between(name, option)) return "--" + option;
  }
  return "";
}

/// Returns a suggestion for the first argument that is not understood.
std::string suggestion(const Arguments& arguments, const KeyTable& keys) {
  const std::string& argument = arguments.other.front();
  if (is_config_file(argument)) return concat(" (did you mean --config ", shell_quoted(argument), "?)");
  std::string name = argument.substr(0, argument.find('='));
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  const std::string option = argument.starts_with('-') ? nearest_option(name) : "";
  if (option.empty()) return keys.suggestion(underscored(name));
  std::string value;
  if (option == "--config" && arguments.other.size() > 1) value = " " + shell_quoted(arguments.other[1]);
  if (option == "--config" && argument.find('=') != std::string::npos)
    value = " " + shell_quoted(argument.substr(argument.find('=') + 1));
  return concat(" (did you mean ", option, value, "?)");
}

/// Returns the type, default and unit of a key: "integer; default 64 tokens".
std::string facts_of(const Key& key, const Settings& defaults) {
  const std::string& value = defaults[key.name];
  const std::string unit = key.unit.empty() ? "" : " " + key.unit;
  return concat(key.type, "; default ", value.empty() ? "empty" : value, unit);
}

}  // namespace

Arguments split_arguments(int argc, const char* const* argv, const Setting& fresh) {
  Arguments arguments;
  if (argc > 0) arguments.program = std::filesystem::path(argv[0]).filename().string();
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    const bool is_option = argument.starts_with("--");
    const size_t equals = argument.find('=');
    const std::string name = underscored(argument.substr(0, equals).substr(is_option ? 2 : 0));
    const bool takes_value = is_option && (name == "config" || is_key_like(name));
    std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (takes_value && equals == std::string::npos) {
      const bool has_value = i + 1 < argc && !std::string(argv[i + 1]).starts_with("--");
      require(has_value, "command line: ", argument, " lacks its value");
      value = argv[++i];
    }
    if (argument == "--help" || argument == "-h") {
      arguments.help = true;
    } else if (argument == "--fresh") {
      arguments.overrides.push_back(fresh);
    } else if (argument == "--version") {
      arguments.version = true;
    } else if (is_option && equals == std::string::npos && name == "print_config") {
      arguments.print_config = true;
    } else if (argument == "--plan") {
      arguments.plan = true;
    } else if (is_option && name == "config") {
      require(arguments.config_file.empty(), "command line: --config is given twice; keep one of them");
      require(!value.empty(), "command line: --config lacks its value");
      arguments.config_file = expanded_path(value, "--config: ");
    } else if (takes_value || (equals != std::string::npos && is_key_like(name))) {
      arguments.overrides.push_back({name, value});
    } else {
      arguments.other.push_back(argument);
    }
  }
  return arguments;
}

std::vector<SettingLayer> layers_of(const Arguments& arguments, const KeyTable& keys) {
  if (!arguments.other.empty())
    throw UserError(concat("command line: '", arguments.other.front(), "' is not understood",
                           suggestion(arguments, keys)));
  std::vector<SettingLayer> layers;
  if (!arguments.config_file.empty()) {
    const std::string path = find_config_file(arguments.config_file);
    layers.push_back(parse_ini(read_named_file(path, "--config"), path));
  }
  layers.push_back(arguments.overrides);
  return layers;
}

bool is_in_section(const std::string& key, const std::vector<std::string>& sections) {
  return std::any_of(sections.begin(), sections.end(),
                     [&](const std::string& section) { return key.starts_with(section + "."); });
}

std::string key_help(const Settings& defaults, const std::vector<std::string>& without) {
  std::ostringstream out;
  std::string heading;
  for (const Key& key : defaults.keys().keys()) {
    if (is_in_section(key.name, without)) continue;
    if (key.heading != heading) out << "\n" << key.heading << "\n";
    heading = key.heading;
    out << (key.is_first ? "* " : "  ") << key.name << "  (" << facts_of(key, defaults) << ")\n      "
        << key.meaning << "\n";
  }
  return out.str();
}

}  // namespace lockstep
