// SPDX-License-Identifier: Apache-2.0
#include "elastic/node_message.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep {

std::string NodeFacts::name() const {
  return concat("node ", node_rank < 0 ? "?" : std::to_string(node_rank), " (", host, ", ", address, ")");
}

std::string NodeMessage::encode() const {
  nlohmann::json object = {{"kind", int(kind)}, {"process", process}, {"code", code}, {"text", text}};
  if (!host.empty()) object["host"] = host;
  if (kind == Kind::join)
    object["facts"] = {{"node_rank", facts.node_rank},
                       {"host", facts.host},
                       {"address", facts.address},
                       {"network", facts.network},
                       {"slots", facts.slots},
                       {"run", facts.run},
                       {"least_nodes", facts.least_nodes},
                       {"most_nodes", facts.most_nodes}};
  // A program may write anything; what is no UTF-8 is shown as such.
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

NodeMessage NodeMessage::decode(std::string_view bytes) {
  try {
    const nlohmann::json object = nlohmann::json::parse(bytes);
    const int kind = object.at("kind");
    expect(kind >= 0 && kind < int(Kind::count), "unknown message ", kind);
    NodeMessage message{.kind = Kind(kind),
                        .process = object.at("process"),
                        .code = object.at("code"),
                        .text = object.at("text"),
                        .host = object.value("host", ""),
                        .facts = {}};
    if (message.kind != Kind::join) return message;
    const nlohmann::json& facts = object.at("facts");
    message.facts = {.node_rank = facts.at("node_rank"),
                     .host = facts.at("host"),
                     .address = facts.at("address"),
                     .network = facts.at("network"),
                     .slots = facts.at("slots"),
                     .run = facts.at("run"),
                     .least_nodes = facts.at("least_nodes"),
                     .most_nodes = facts.at("most_nodes")};
    return message;
  } catch (const nlohmann::json::exception& failure) {
    throw Error(concat("not a message between nodes: ", failure.what()));
  }
}

}  // namespace lockstep
