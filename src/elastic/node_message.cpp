// SPDX-License-Identifier: Apache-2.0
#include "elastic/node_message.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeFacts, node_rank, host, process, address, network, slots, run,
                                   least_nodes, most_nodes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeMessage, kind, process, code, text, host, facts)

std::string NodeFacts::name() const {
  return concat("node ", node_rank < 0 ? "?" : std::to_string(node_rank), " (", host, ", ", address, ")");
}

std::string NodeMessage::encode() const {
  // A program may write anything; what is no UTF-8 is shown as such.
  return nlohmann::json(*this).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

NodeMessage NodeMessage::decode(std::string_view bytes) {
  try {
    const auto message = nlohmann::json::parse(bytes).get<NodeMessage>();
    expect(message.kind >= Kind::join && message.kind < Kind::count, "unknown message ", int(message.kind));
    return message;
  } catch (const nlohmann::json::exception& failure) {
    throw Error(concat("not a message between nodes: ", failure.what()));
  }
}

}  // namespace lockstep
