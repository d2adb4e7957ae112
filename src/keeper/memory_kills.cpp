// SPDX-License-Identifier: Apache-2.0
#include "keeper/memory_kills.h"

#include <cmath>
#include <utility>

#include "core/text.h"

namespace lockstep {

MemoryKills::MemoryKills(ControlGroups groups, std::string machine)
    : groups_(std::move(groups)), machine_(std::move(machine)), before_(count()) {}

std::string MemoryKills::reason() const {
  if (count() <= before_) return "";
  const double limit = groups_.memory_limit();
  const double machine = 1024 * number_in_file(machine_ + "/meminfo", "MemTotal:");
  return limit < machine ? "the limit of its control group is " + bytes_text(limit)
                         : "the machine ran out of memory";
}

int64_t MemoryKills::count() const {
  if (const auto kills = groups_.memory_kills()) return *kills;
  const double kills = number_in_file(machine_ + "/vmstat", "oom_kill");
  return std::isfinite(kills) ? static_cast<int64_t>(kills) : 0;
}

}  // namespace lockstep
