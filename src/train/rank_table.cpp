// SPDX-License-Identifier: Apache-2.0
#include "train/rank_table.h"

#include <algorithm>
#include <sstream>

#include "core/error.h"
#include "core/gpu.h"
#include "core/host.h"
#include "core/log.h"
#include "train/processor_peak.h"

namespace lockstep {
namespace {

RankPlace this_place() {
  RankPlace place{.host = host_name(), .processor = processor_name(), .gpu = {}, .gpu_id = {}};
  if (device_of(current_stream()) == Device::cpu) return place;
  const GpuProperties properties = gpu_properties(gpu_of(current_stream()));
  place.gpu = properties.name;
  place.gpu_id = properties.uuid.substr(0, sizeof("GPU-12345678") - 1);
  return place;
}

std::string to_text(const RankPlace& place) {
  return concat(place.host, "\n", place.processor, "\n", place.gpu, "\n", place.gpu_id);
}

RankPlace to_place(const std::string& text) {
  RankPlace place;
  std::istringstream lines(text);
  for (std::string* field : {&place.host, &place.processor, &place.gpu, &place.gpu_id})
    std::getline(lines, *field);
  return place;
}

const std::string& model(const RankPlace& place) { return place.gpu.empty() ? place.processor : place.gpu; }

/// "rank 3", "ranks 0-2,5".
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

/// The ranks in groups of those for which `is_same` holds, in the order of each group's first rank.
template <class Same>
std::vector<std::vector<size_t>> group_ranks(const std::vector<RankPlace>& places, const Same& is_same) {
  std::vector<std::vector<size_t>> groups;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const std::vector<size_t>& members) {
      return is_same(places[members.front()], places[rank]);
    });
    if (group == groups.end())
      groups.push_back({rank});
    else
      group->push_back(rank);
  }
  return groups;
}

}  // namespace

std::vector<std::string> rank_table(const std::vector<RankPlace>& places) {
  std::vector<std::string> lines;
  const auto on_one_line = [](const RankPlace& a, const RankPlace& b) {
    return a.host == b.host && model(a) == model(b);
  };
  for (const std::vector<size_t>& ranks : group_ranks(places, on_one_line)) {
    const RankPlace& first = places[ranks.front()];
    std::string line = concat(rank_list(ranks), " on ", first.host, ": ", model(first));
    for (const size_t rank : ranks)
      if (!first.gpu.empty()) line += concat(rank == ranks.front() ? " (" : " ", places[rank].gpu_id);
    lines.push_back(first.gpu.empty() ? line : line + ")");
  }
  return lines;
}

std::string mixed_processors(const std::vector<RankPlace>& places) {
  const auto groups =
      group_ranks(places, [](const RankPlace& a, const RankPlace& b) { return a.processor == b.processor; });
  if (groups.size() <= 1) return {};
  std::string text = "the processors differ: ";
  for (const std::vector<size_t>& ranks : groups)
    text += concat(&ranks == &groups.front() ? "" : ", ", places[ranks.front()].processor, " (",
                   rank_list(ranks), ")");
  return text +
         ". Their instruction set is the same, so the results are too, but every step waits for the slowest";
}

std::vector<RankPlace> gather_places(const World& world) {
  std::vector<RankPlace> places;
  for (const std::string& text : world.communicator().all_gather_text(to_text(this_place())))
    places.push_back(to_place(text));
  return places;
}

void print_rank_table(const World& world) {
  if (world.size() == 1) return;
  const std::vector<RankPlace> places = gather_places(world);
  if (!world.is_first()) return;
  for (const std::string& line : rank_table(places)) log_info(line);
  if (const std::string warning = mixed_processors(places); !warning.empty()) log_warning(warning);
}

}  // namespace lockstep
