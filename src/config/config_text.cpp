// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include "config/config.h"
#include "config/config_schema.h"

namespace lockstep {
namespace {

std::string section_of(const ConfigKey& key) { return key.name.substr(0, key.name.find('.')); }
std::string name_of(const ConfigKey& key) { return key.name.substr(key.name.find('.') + 1); }

/// In quotes where the parser would otherwise see a comment or drop blanks.
std::string quoted(const std::string& text) {
  const bool is_plain = text.empty() || (text.find_first_of("#;") == std::string::npos &&
                                         text.front() != ' ' && text.back() != ' ');
  return is_plain ? text : '"' + text + '"';
}

}  // namespace

std::string to_ini(const Config& config) {
  std::ostringstream out;
  std::string section;
  for (const ConfigKey& key : config_schema()) {
    if (section_of(key) != section) {
      out << (section.empty() ? "[" : "\n[") << section_of(key) << "]\n";
      section = section_of(key);
    }
    const std::string value = quoted(key.text(config));
    out << name_of(key) << (value.empty() ? " =" : " = ") << value << "\n";
  }
  return out.str();
}

std::string config_help(const std::string& program, const Config& defaults) {
  std::ostringstream out;
  out << "usage: " << program
      << " [--config FILE] [section.key=value ...] [--fresh] [--print-config] [--version] [--help]\n\n"
      << "FILE is a path or the name of a shipped configuration. A key may also be written "
         "--section.key=value or\n"
      << "--section.key value; the order does not matter. The command line beats the file, and both beat "
         "presets.\n"
      << "--fresh trains anew where log.dir holds a run, which moves aside (snapshot.resume=never).\n"
      << "--print-config prints all keys as they are then settled, as INI, and trains nothing.\n";
  std::string section;
  for (const ConfigKey& key : config_schema()) {
    if (section_of(key) != section) out << "\n[" << section_of(key) << "]\n";
    section = section_of(key);
    const std::string value = key.text(defaults);
    out << "  " << key.name << " (" << key.type() << "; default " << (value.empty() ? "empty" : value)
        << (key.unit.empty() ? "" : " ") << key.unit << ")\n      " << key.meaning << "\n";
  }
  return out.str();
}

}  // namespace lockstep
