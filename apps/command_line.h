// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/exit_code.h"
#include "core/text.h"
#include "core/version.h"

namespace lockstep {

/// Accepts a whole number from `least` up, and says so in words where there is something else.
inline CLI::Validator whole_number(int64_t least) {
  return {[least](const std::string& text) {
            const std::optional<int64_t> number = number_in<int64_t>(text);
            return number && *number >= least
                       ? std::string()
                       : concat("expected a whole number from ", least, " up, not '", text, "'");
          },
          ""};
}

/// Parses with --help and --version. The exit code, if there is nothing left to do.
inline std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  app.set_version_flag("--version", version_text());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? 0 : exit_usage;
  }
  return std::nullopt;
}

}  // namespace lockstep
