// SPDX-License-Identifier: Apache-2.0
#include "lockstep/hosting/host_links.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/net/secret.h"

namespace lockstep {
namespace {

constexpr size_t name_space_bytes = 12;
/// Seconds without a message, after which a host counts as lost. It sends heartbeats.
constexpr double silence_seconds = 15.0;

}  // namespace

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

HostLinks::HostLinks(std::vector<RankMap::Node> nodes) {
  map_.name_space = concat("lockrun-", hexadecimal(random_bytes(name_space_bytes)));
  map_.nodes = std::move(nodes);
  // PMIx tells nodes apart by their names. Containers on several machines may have one name.
  std::set<std::string> names;
  for (RankMap::Node& node : map_.nodes)
    while (!names.insert(node.host).second) node.host += concat("-", names.size());
}

void HostLinks::add(std::unique_ptr<Channel> channel, const std::string& greeting) {
  const int node = number_in<int>(std::string_view(greeting).substr(host_greeting.size())).value_or(-1);
  expect(node >= 0 && node < static_cast<int>(map_.nodes.size()) && !links_.contains(node),
         "lockrun: an unexpected host, '", shortened(greeting), "', from ", channel->peer());
  links_[node].channel = std::move(channel);
  HostMessage message{.kind = is_over_ ? HostMessage::Kind::end : HostMessage::Kind::map};
  if (!is_over_) message.map = map_;
  message.map.here = node;
  send(node, message);
}

std::string HostLinks::attend() {
  for (auto& [node, link] : links_) {
    try {
      while (const auto text = link.channel ? link.channel->receive(0.0) : std::nullopt) {
        link.heard = Clock::now();
        obey(node, HostMessage::decode(*text));
      }
    } catch (const Error& problem) {
      const bool is_closed = dynamic_cast<const ConnectionClosed*>(&problem) != nullptr;
      link.channel = nullptr;
      if (!is_over_)
        return concat(name_of(node),
                      is_closed ? " ended before its ranks did" : concat(": ", problem.what()));
    }
    if (link.channel && !is_over_ && seconds_since(link.heard) > silence_seconds)
      return concat(name_of(node), " has sent nothing for ", silence_seconds, " s");
  }
  return "";
}

void HostLinks::obey(int node, HostMessage message) {
  using Kind = HostMessage::Kind;
  if (message.kind == Kind::fence) {
    const auto fence = fences_.add(node, message.participants, message.data);
    if (!fence) return;
    for (const int one : fence->nodes)
      send(one, {.kind = Kind::fenced, .participants = message.participants, .data = fence->data});
  }
  if (message.kind == Kind::fetch) {
    const auto has_rank = [&](const RankMap::Node& each) {
      return std::ranges::find(each.ranks, message.rank) != each.ranks.end();
    };
    const auto owner = std::ranges::find_if(map_.nodes, has_rank);
    expect(owner != map_.nodes.end(), "it asks for rank ", message.rank);
    message.node = node;
    send(static_cast<int>(owner - map_.nodes.begin()), message);
  }
  if (message.kind == Kind::fetched) send(message.node, message);
}

void HostLinks::send(int node, const HostMessage& message) {
  const auto link = links_.find(node);
  if (link == links_.end() || !link->second.channel) return;
  try {
    link->second.channel->send(message.encode());
  } catch (const ConnectionClosed&) {
    // attend() notices that the host is gone.
  }
}

void HostLinks::end() {
  is_over_ = true;
  for (const auto& [node, link] : links_) send(node, {.kind = HostMessage::Kind::end});
}

std::vector<int> HostLinks::descriptors() const {
  std::vector<int> all;
  for (const auto& [node, link] : links_)
    if (link.channel) all.push_back(link.channel->descriptor());
  return all;
}

std::string HostLinks::name_of(int node) const {
  return concat("lockrun_host on ", map_.nodes[static_cast<size_t>(node)].host);
}

}  // namespace lockstep
