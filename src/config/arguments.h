// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/config/key.h"
#include "lockstep/config/settings.h"

namespace lockstep {

/// The parts of a command line. Before layers_of(), a program removes its own arguments from `other`. It may
/// also add to `overrides`, where later ones win.
struct Arguments {
  std::string program;             ///< the executable's file name
  std::string config_file;         ///< of --config; empty if absent
  SettingLayer overrides;          ///< section.key=value, --section.key=value, --section.key value; - means _
  std::vector<std::string> other;  ///< all other arguments, in order
  bool help = false;               ///< --help or -h
  bool version = false;            ///< --version
  bool print_config = false;       ///< --print-config
  bool plan = false;               ///< --plan
};

/// Splits the arguments of main(). `--fresh` stands for the setting `fresh`. Throws UserError if --config or
/// --section.key has no value.
Arguments split_arguments(int argc, const char* const* argv, const Setting& fresh);

/// Returns the settings of the file and of the command line, the weakest first. Throws UserError for any
/// argument left in `other`, and suggests an option or a key.
std::vector<SettingLayer> layers_of(const Arguments& arguments, const KeyTable& keys);

/// Returns the part of --help about keys: each with type, default, unit and meaning, in unwrapped lines. Keys
/// of the sections in `without` are left out.
std::string key_help(const Settings& defaults, const std::vector<std::string>& without = {});

/// Returns whether a key belongs to one of these sections.
bool is_in_section(const std::string& key, const std::vector<std::string>& sections);

}  // namespace lockstep
