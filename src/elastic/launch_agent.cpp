// SPDX-License-Identifier: Apache-2.0
#include "elastic/launch_agent.h"

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <sys/prctl.h>

#include "core/error.h"
#include "core/text.h"
#include "elastic/channel.h"
#include "elastic/node_message.h"

namespace lockstep {
namespace {

constexpr double patience_seconds = 20.0;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  expect(value != nullptr, name, " is not set: only mpirun under lockrun starts a launch agent");
  return value;
}

}  // namespace

int run_launch_agent(const std::string& node, const std::vector<std::string>& command) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Secret secret = Secret::from_text(variable(secret_variable), secret_variable);
  Channel channel = connect_channel(variable(agent_endpoint_variable), secret, patience_seconds);
  channel.send(
      NodeMessage{.kind = NodeMessage::Kind::start, .text = joined(command, " "), .host = node}.encode());
  while (true) {
    const auto bytes = channel.receive(3600.0);
    if (!bytes) continue;
    const NodeMessage message = NodeMessage::decode(*bytes);
    if (message.kind == NodeMessage::Kind::output) std::cerr << message.text << std::flush;
    if (message.kind == NodeMessage::Kind::ended) return message.code;
  }
}

}  // namespace lockstep
