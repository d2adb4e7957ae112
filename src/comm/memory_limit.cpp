// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/memory_limit.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sys/resource.h>

#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

double address_space_limit() {
  rlimit limit{};
  const bool is_limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_limited ? static_cast<double>(limit.rlim_cur) : std::numeric_limits<double>::infinity();
}

}  // namespace

double number_in_file(const std::filesystem::path& path, const std::string& word) {
  std::ifstream file(path);
  std::string text;
  double number = 0;
  while (!word.empty() && file >> text && text != word) continue;
  return file >> number ? number : std::numeric_limits<double>::infinity();
}

ControlGroups::ControlGroups(const std::filesystem::path& process, const std::filesystem::path& root) {
  std::ifstream lines(process / "cgroup");
  for (std::string line; std::getline(lines, line);) {
    const bool is_version_2 = line.starts_with("0::");
    if (!is_version_2 && line.find(":memory:") == std::string::npos) continue;
    const std::filesystem::path outermost = is_version_2 ? root : root / "memory";
    std::filesystem::path folder = line.substr(line.rfind(':') + 1);
    for (; folder.has_relative_path(); folder = folder.parent_path())
      groups_.push_back({outermost / folder.relative_path(), is_version_2});
    groups_.push_back({outermost, is_version_2});
  }
}

double ControlGroups::memory_limit() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [folder, is_version_2] : groups_)
    least = std::min(least, number_in_file(folder / (is_version_2 ? "memory.max" : "memory.limit_in_bytes")));
  return least;
}

std::optional<int64_t> ControlGroups::memory_kills() const {
  for (const auto& [folder, is_version_2] : groups_) {
    const char* name = is_version_2 ? "memory.events" : "memory.oom_control";
    const double kills = number_in_file(folder / name, "oom_kill");
    if (std::isfinite(kills)) return static_cast<int64_t>(kills);
  }
  return std::nullopt;
}

ProcessMemory process_memory() {
  const auto bytes = [](const char* word) { return 1024 * number_in_file("/proc/self/status", word); };
  return {.resident = bytes("VmRSS:"), .most_resident = bytes("VmHWM:"), .mapped = bytes("VmSize:")};
}

std::string peak_memory_text() {
  std::vector<std::string> peaks;
  for (const MemoryUse& use : memory_table(current_stream()))
    peaks.push_back(concat(use.label, " ", bytes_text(static_cast<double>(use.peak_bytes))));
  const int gpu = gpu_of(current_stream());
  return concat("peak memory: ", bytes_text(process_memory().most_resident), " resident; ",
                gpu >= 0 ? concat("GPU ", gpu) : "cpu", ": ", joined(peaks));
}

std::vector<MemoryLimit> memory_limits(const World& world) {
  using Bounds = MemoryLimit::Bounds;
  const int gpu = gpu_of(current_stream());
  // Pages that are not used for a while may move to swap, which a control group's limit does not count. Pages
  // that a GPU copies from may not.
  const double swap = gpu >= 0 ? 0 : 1024 * number_in_file("/proc/meminfo", "SwapTotal:");
  const double machine = 1024 * number_in_file("/proc/meminfo", "MemTotal:") + swap;
  std::vector<MemoryLimit> limits = {
      {machine,
       concat("this machine has ", bytes_text(machine), " for ", counted(world.local_size(), "rank")),
       Bounds::host}};
  // Not divided by ranks, because each rank may have a control group of its own.
  if (const double group = ControlGroups().memory_limit() + swap; group < machine)
    limits.push_back({group, concat("its control group has ", bytes_text(group)),
                      gpu >= 0 ? Bounds::on_host : Bounds::resident});
  if (gpu >= 0) {
    const auto bytes = static_cast<double>(gpu_properties(gpu).memory_bytes);
    limits.push_back({bytes, concat("this GPU has ", bytes_text(bytes)), Bounds::resident});
    return limits;
  }
  if (const double own = address_space_limit(); std::isfinite(own))
    limits.push_back(
        {own, concat("its address space is limited to ", bytes_text(own), " (ulimit -v)"), Bounds::mapped});
  return limits;
}

}  // namespace lockstep
