// SPDX-License-Identifier: Apache-2.0
#include "hosting/fences.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/text.h"

namespace lockstep {

std::optional<Fences::Completed> Fences::add(int node, const std::string& participants,
                                             const std::string& data) {
  const std::vector<int> nodes = nodes_of(participants);
  expect(std::ranges::find(nodes, node) != nodes.end(), "node ", node,
         " contributes to a fence of the ranks ", shortened(participants), ", of which it has none");
  auto& contributions = waiting_[participants];
  contributions[node].push_back(data);
  if (contributions.size() < nodes.size()) return std::nullopt;
  Completed fence{.nodes = nodes, .data = {}};
  for (const int one : nodes) {
    const auto found = contributions.find(one);
    fence.data += found->second.front();
    found->second.pop_front();
    if (found->second.empty()) contributions.erase(found);
  }
  if (contributions.empty()) waiting_.erase(participants);
  return fence;
}

std::vector<int> Fences::nodes_of(const std::string& participants) const {
  std::set<int> ranks;
  std::istringstream words(participants);
  for (std::string word; std::getline(words, word, ',');) {
    const int rank = number_in<int>(word).value_or(-1);
    expect(rank >= 0 && rank < map_.size(), "'", shortened(word), "' is not a rank of a fence");
    ranks.insert(rank);
  }
  std::vector<int> nodes;
  for (size_t node = 0; node < map_.nodes.size(); ++node) {
    const std::vector<int>& local = map_.nodes[node].ranks;
    const bool takes_part = std::ranges::any_of(local, [&](int rank) { return ranks.contains(rank); });
    if (participants.empty() || takes_part) nodes.push_back(static_cast<int>(node));
  }
  return nodes;
}

}  // namespace lockstep
