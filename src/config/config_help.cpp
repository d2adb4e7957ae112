// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <sstream>

#include "config/config_schema.h"
#include "core/error.h"

namespace lockstep {
namespace {

/// The keys that a first run needs.
constexpr std::array first_keys = {
    "data.dataset",     "data.block_size",     "model.from",      "model.preset",  "train.steps",
    "train.batch_size", "train.learning_rate", "train.precision", "dist.replicas", "log.dir"};

constexpr const char* usage =
    " [--config FILE] [section.key=value ...] [OPTIONS]\n"
    "\n"
    "  --config FILE      a path, or the name of a shipped configuration: --config quickstart\n"
    "  section.key=value  sets a key; --section.key=value and --section.key value do the same. The command "
    "line overrides the file, and both override model.preset\n"
    "  --plan             print the memory that a rank needs, whether it fits, the largest batch that fits, "
    "and the cheapest change that makes it fit. Allocates and trains nothing. Under mpirun it plans for that "
    "number of ranks. Exit code 0 even if the run does not fit; such a run itself is refused with exit code "
    "2\n"
    "  --print-config     print all keys with their final values as an INI file. Trains nothing\n"
    "  --fresh            start a new run; a run in log.dir is moved aside (snapshot.resume=never)\n"
    "  --version          print the version and how the program was built\n"
    "  --help             print this text\n"
    "\n"
    "Keys, with type and default. The ten keys marked * matter first.\n";

/// Returns the type, default and unit of a key: "integer; default 64 tokens".
std::string facts_of(const ConfigKey& key, const Config& defaults) {
  const std::string value = key.text(defaults);
  const std::string unit = key.unit.empty() ? "" : " " + key.unit;
  return concat(key.type(), "; default ", value.empty() ? "empty" : value, unit);
}

}  // namespace

std::string config_help(const std::string& program, const Config& defaults) {
  std::ostringstream out;
  out << "usage: " << program << usage;
  std::string heading;
  for (const ConfigKey& key : config_schema()) {
    if (key.heading != heading) out << "\n" << key.heading << "\n";
    heading = key.heading;
    const std::string mark = std::ranges::count(first_keys, key.name) > 0 ? "* " : "  ";
    out << mark << key.name << "  (" << facts_of(key, defaults) << ")\n      " << key.meaning << "\n";
  }
  return out.str();
}

}  // namespace lockstep
