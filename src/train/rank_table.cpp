// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/rank_table.h"

#include <algorithm>
#include <functional>
#include <sstream>
#include <unistd.h>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/log.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/core/version.h"
#include "lockstep/kernels/processor.h"

namespace lockstep {
namespace {

RankDevice this_place() {
  RankDevice place{.host = host_name(), .processor = processor_name(), .gpu = {}, .gpu_id = {}};
  if (device_of(current_stream()) == Device::cpu) return place;
  const GpuProperties properties = gpu_properties(gpu_of(current_stream()));
  place.gpu = properties.name;
  place.gpu_id = properties.uuid.substr(0, sizeof("GPU-12345678") - 1);
  return place;
}

const std::string& model(const RankDevice& place) { return place.gpu.empty() ? place.processor : place.gpu; }

/// Formats a list of ranks: "rank 3", "ranks 0-2,5".
std::string rank_list(const std::vector<size_t>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += concat(i == 0 ? "" : ",", ranks[i]);
    if (last > i) text += concat("-", ranks[last]);
    i = last + 1;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

/// Groups ranks for which `what` is equal. Groups are in the order of their first ranks.
template <class What>
std::vector<std::vector<size_t>> group_ranks(const std::vector<RankDevice>& places, const What& what) {
  std::vector<std::vector<size_t>> groups;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const auto group = std::ranges::find(groups, std::invoke(what, places[rank]), [&](const auto& ranks) {
      return std::invoke(what, places[ranks.front()]);
    });
    (group == groups.end() ? groups.emplace_back() : *group).push_back(rank);
  }
  return groups;
}

}  // namespace

std::vector<std::string> rank_table(const std::vector<RankDevice>& places) {
  std::vector<std::string> lines;
  const auto line_of = [](const RankDevice& place) { return std::pair(place.host, model(place)); };
  for (const std::vector<size_t>& ranks : group_ranks(places, line_of)) {
    const RankDevice& first = places[ranks.front()];
    std::string line = concat(rank_list(ranks), " on ", first.host, ": ", model(first));
    for (const size_t rank : ranks)
      if (!first.gpu.empty()) line += concat(rank == ranks.front() ? " (" : " ", places[rank].gpu_id);
    lines.push_back(first.gpu.empty() ? line : line + ")");
  }
  return lines;
}

std::string mixed_processors(const std::vector<RankDevice>& places) {
  const auto groups = group_ranks(places, &RankDevice::processor);
  if (groups.size() <= 1) return {};
  std::string text = "the processors differ: ";
  for (const std::vector<size_t>& ranks : groups)
    text += concat(&ranks == &groups.front() ? "" : ", ", places[ranks.front()].processor, " (",
                   rank_list(ranks), ")");
  return text + ". The results are the same, but every step waits for the slowest";
}

std::vector<RankDevice> gather_places(const World& world) {
  const auto [host, processor, gpu, gpu_id] = this_place();
  const std::string mine = concat(host, "\n", processor, "\n", gpu, "\n", gpu_id);
  std::vector<RankDevice> places;
  for (const std::string& text : world.communicator().all_gather_text(mine)) {
    std::istringstream lines(text);
    RankDevice& place = places.emplace_back();
    for (std::string* field : {&place.host, &place.processor, &place.gpu, &place.gpu_id})
      std::getline(lines, *field);
  }
  return places;
}

std::string describe_rank(const World& world, int64_t threads) {
  const RankDevice place = this_place();
  const std::string gpu =
      place.gpu.empty() ? ""
                        : concat("GPU ", gpu_of(current_stream()), " ", place.gpu, " (", place.gpu_id, "), ");
  return concat("rank ", world.rank(), " of ", world.size(), " on ", place.host, ", pid ", ::getpid(),
                restart_count() > 0 ? concat(", restart ", restart_count()) : "", ": ", gpu, place.processor,
                ", ", counted(threads, "thread"), "; ", version_text());
}

void print_rank_table(const World& world) {
  if (world.size() == 1) return;
  const std::vector<RankDevice> places = gather_places(world);
  if (!world.is_first()) return;
  for (const std::string& line : rank_table(places)) log_info(line);
  if (const std::string warning = mixed_processors(places); !warning.empty()) log_warning(warning);
}

}  // namespace lockstep
