// SPDX-License-Identifier: Apache-2.0
#include "lockstep/hosting/host_messages.h"

#include <nlohmann/json.hpp>
#include <tuple>

#include "lockstep/core/error.h"
#include "lockstep/json/json_members.h"
#include "lockstep/net/channel.h"

namespace lockstep {

static constexpr auto json_members(const RankMap::Node* /*any*/) {
  return std::tuple{JsonMember{"host", &RankMap::Node::host}, JsonMember{"ranks", &RankMap::Node::ranks}};
}

static constexpr auto json_members(const RankMap* /*any*/) {
  return std::tuple{JsonMember{"name_space", &RankMap::name_space}, JsonMember{"nodes", &RankMap::nodes},
                    JsonMember{"here", &RankMap::here}};
}

static constexpr auto json_members(const HostMessage* /*any*/) {
  using Message = HostMessage;
  return std::tuple{
      JsonMember{"kind", &Message::kind},     JsonMember{"node", &Message::node},
      JsonMember{"number", &Message::number}, JsonMember{"rank", &Message::rank},
      JsonMember{"status", &Message::status}, JsonMember{"participants", &Message::participants},
      JsonMember{"data", &Message::data},     JsonMember{"map", &Message::map}};
}

int RankMap::size() const {
  size_t sum = 0;
  for (const Node& node : nodes) sum += node.ranks.size();
  return static_cast<int>(sum);
}

std::string HostMessage::encode() const { return nlohmann::json(*this).dump(); }

HostMessage HostMessage::decode(std::string_view text) {
  try {
    HostMessage message;
    read_value(JsonField<nlohmann::json>(text, "a message of lockrun_host", Channel::most_bytes), message);
    return message;
  } catch (const UserError& problem) {
    throw Error(problem.what());
  }
}

}  // namespace lockstep
