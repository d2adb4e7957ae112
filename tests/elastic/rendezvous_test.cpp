// SPDX-License-Identifier: Apache-2.0
#include "lockstep/elastic/rendezvous.h"

#include <future>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include "lockstep/core/process.h"
#include "lockstep/elastic/launchers.h"
#include "lockstep/net/addresses.h"
#include "support/temporary_directory.h"

namespace lockstep {
namespace {

using Kind = NodeMessage::Kind;

constexpr double soon = 30.0;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& failure) {
    return failure.what();
  }
  return "";
}

/// Tests of a rendezvous on an address of this machine, with nodes that only exchange messages.
class RendezvousTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const InterfaceAddress& one : shared_addresses()) address_ = one.address;
    if (address_.empty()) GTEST_SKIP() << "this machine has no address that others could reach";
    write_text(directory_ / "secret", secret_.bytes());
    ASSERT_EQ(::chmod((directory_ / "secret").c_str(), 0600), 0);
  }

  NodeOptions options(int least, int most) const {
    NodeOptions options;
    options.least_nodes = least;
    options.most_nodes = most;
    options.node_rank = 0;
    options.endpoint = Endpoint{.host = address_, .port = 0}.text();
    options.id = "blue";
    options.secret_file = directory_ / "secret";
    options.slots = 2;
    options.program = "/opt/lockrun";
    options.last_call_seconds = 0.3;
    return options;
  }

  NodeFacts facts(int node_rank, int least, int most) const {
    return {.node_rank = node_rank,
            .host = "host-b",
            .process = "one",
            .address = address_,
            .slots = 3,
            .run = "blue",
            .least_nodes = least,
            .most_nodes = most};
  }

  /// Returns a node's connection after it has sent its facts.
  Channel introduce(const Rendezvous& rendezvous, const NodeFacts& node) const {
    Channel channel = connect_channel(rendezvous.endpoint(), secret_, soon, address_);
    channel.send(NodeMessage{.kind = Kind::join, .facts = node}.encode());
    return channel;
  }

  static NodeMessage next_but_beats(Channel& channel) {
    while (auto bytes = channel.receive(soon)) {
      NodeMessage message = NodeMessage::decode(*bytes);
      if (message.kind != Kind::beat) return message;
    }
    ADD_FAILURE() << "no message";
    return {};
  }

  static NodeEvent next_event(Rendezvous& rendezvous) {
    pollfd entry{rendezvous.events(), POLLIN, 0};
    EXPECT_EQ(::poll(&entry, 1, int(soon * 1000)), 1) << "no event";
    return rendezvous.next_event().value_or(NodeEvent{});
  }

  Secret secret_ = Secret::random();
  TemporaryDirectory directory_;
  std::string address_;
};

TEST_F(RendezvousTest, StartsWhenAllAreThere) {
  Rendezvous rendezvous(options(2, 2));
  EXPECT_FALSE(rendezvous.gather(0).has_value());
  Channel node = introduce(rendezvous, facts(1, 2, 2));
  EXPECT_EQ(next_but_beats(node).kind, Kind::welcome);
  const auto placement = rendezvous.gather(soon);
  ASSERT_TRUE(placement.has_value());
  ASSERT_EQ(placement->hosts.size(), 2U);
  EXPECT_EQ(placement->ranks(), 5);
  EXPECT_EQ(placement->hosts[0].name, host_name());
  EXPECT_EQ(placement->hosts[1].name, "host-b");
  EXPECT_EQ(placement->address, address_);
  EXPECT_TRUE(placement->runs_lockrun);
  EXPECT_EQ(choose_launcher({}, *placement), Launcher::pmix);
  rendezvous.start_hosts("10.0.0.1:4000", 2);
  const NodeMessage start = next_but_beats(node);
  EXPECT_EQ(start.kind, Kind::start);
  EXPECT_EQ(start.number, 1);
  EXPECT_EQ(start.text, "10.0.0.1:4000");
  node.send(NodeMessage{.kind = Kind::host_ended, .text = "lockrun_host ended: exit code 3"}.encode());
  const NodeEvent ended = next_event(rendezvous);
  EXPECT_EQ(ended.kind, NodeEvent::Kind::host_ended);
  EXPECT_EQ(ended.reason, "lockrun_host ended: exit code 3");
}

TEST_F(RendezvousTest, WithTheLeastThereItCallsOnceMore) {
  Rendezvous rendezvous(options(1, 3));
  Channel node = introduce(rendezvous, facts(-1, 1, 3));
  EXPECT_EQ(next_but_beats(node).kind, Kind::welcome);
  const auto placement = rendezvous.gather(soon);
  ASSERT_TRUE(placement.has_value());
  EXPECT_EQ(placement->hosts.size(), 2u);
}

TEST_F(RendezvousTest, LeavesANodeOutIfEnoughRemain) {
  Rendezvous rendezvous(options(2, 3));
  std::vector<Channel> nodes;
  for (const int rank : {1, 2}) {
    NodeFacts node = facts(rank, 2, 3);
    node.process = concat("process ", rank);
    nodes.push_back(introduce(rendezvous, node));
    EXPECT_EQ(next_but_beats(nodes.back()).kind, Kind::welcome);
  }
  const auto all = rendezvous.gather(soon);
  ASSERT_TRUE(all.has_value());
  ASSERT_EQ(all->hosts.size(), 3U);
  EXPECT_EQ(all->host_of(1).process, "");
  EXPECT_EQ(all->host_of(2).process, "process 1");
  EXPECT_EQ(all->host_of(7).process, "process 2");
  EXPECT_FALSE(rendezvous.leave_out(all->hosts[0])) << "node 0 supervises the run";
  EXPECT_TRUE(rendezvous.leave_out(all->hosts[1]));
  const auto rest = rendezvous.gather(soon);
  ASSERT_TRUE(rest.has_value());
  ASSERT_EQ(rest->hosts.size(), 2U);
  EXPECT_EQ(rest->hosts[1].process, "process 2");
  rendezvous.start_hosts("10.0.0.1:4000", 2);
  EXPECT_EQ(next_but_beats(nodes[1]).number, 1) << "the node behind takes the place";
  EXPECT_FALSE(rendezvous.leave_out(rest->hosts[1])) << "two nodes are the least";
}

TEST_F(RendezvousTest, NamesTheMissingWhenItGivesUp) {
  NodeOptions impatient = options(4, 4);
  impatient.timeout_seconds = 0.5;
  Rendezvous rendezvous(impatient);
  Channel node = introduce(rendezvous, facts(2, 4, 4));
  EXPECT_EQ(next_but_beats(node).kind, Kind::welcome);
  const std::string message = message_of([&] { (void)rendezvous.gather(soon); });
  EXPECT_NE(message.find("node 1, node 3 did not join"), std::string::npos) << message;
}

TEST_F(RendezvousTest, RefusesWhoDoesNotBelongByName) {
  Rendezvous rendezvous(options(2, 2));
  NodeFacts other_run = facts(1, 2, 2);
  other_run.run = "green";
  NodeFacts other_address = facts(1, 2, 2);
  other_address.address = "192.0.2.1";
  const std::vector<std::pair<NodeFacts, std::string>> cases = {
      {other_run, "this is run \"blue\", not \"green\""},
      {facts(1, 2, 3), "--nnodes is 2:2 on node 0"},
      {facts(0, 2, 2), "node 0 is " + host_name()},
      {other_address, "its own address is 192.0.2.1, but it connects from " + address_}};
  for (const auto& [node, reason] : cases) {
    Channel channel = introduce(rendezvous, node);
    const NodeMessage answer = next_but_beats(channel);
    EXPECT_EQ(answer.kind, Kind::refused);
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.text.find(reason), std::string::npos) << answer.text;
  }
  EXPECT_FALSE(rendezvous.gather(0).has_value());
}

TEST_F(RendezvousTest, ANodeRankIsTakenOnceButANodeMayComeBack) {
  Rendezvous rendezvous(options(2, 2));
  Channel node = introduce(rendezvous, facts(1, 2, 2));
  EXPECT_EQ(next_but_beats(node).kind, Kind::welcome);
  NodeFacts twin = facts(1, 2, 2);
  twin.host = "host-c";
  Channel second = introduce(rendezvous, twin);
  const NodeMessage answer = next_but_beats(second);
  EXPECT_NE(answer.text.find("there is already a node 1 (host-b"), std::string::npos) << answer.text;
  // Otherwise two nodes with the same number would replace each other until the budget is used up.
  NodeFacts double_start = facts(1, 2, 2);
  double_start.process = "two";
  Channel fourth = introduce(rendezvous, double_start);
  const NodeMessage wait = next_but_beats(fourth);
  EXPECT_NE(wait.text.find("another lockrun"), std::string::npos) << wait.text;
  EXPECT_EQ(wait.code, 1) << "the first node may be about to be lost, so this one asks again";
  NodeFacts spare = facts(-1, 2, 2);
  Channel third = introduce(rendezvous, spare);
  const NodeMessage full = next_but_beats(third);
  EXPECT_EQ(full.kind, Kind::refused);
  EXPECT_EQ(full.code, 1) << "a spare node must ask again";
  Channel again = introduce(rendezvous, facts(1, 2, 2));
  EXPECT_EQ(next_but_beats(again).kind, Kind::welcome);
  EXPECT_TRUE(rendezvous.gather(soon).has_value());
}

TEST_F(RendezvousTest, ALostNodeAndARequestToStopAreEvents) {
  Rendezvous rendezvous(options(2, 2));
  {
    Channel node = introduce(rendezvous, facts(1, 2, 2));
    EXPECT_EQ(next_but_beats(node).kind, Kind::welcome);
    node.send(NodeMessage{.kind = Kind::stop}.encode());
    const NodeEvent stop = next_event(rendezvous);
    EXPECT_EQ(stop.kind, NodeEvent::Kind::stop_requested);
    EXPECT_EQ(stop.node, "node 1 (host-b, " + address_ + ")");
  }
  EXPECT_EQ(next_event(rendezvous).kind, NodeEvent::Kind::lost);
  EXPECT_FALSE(rendezvous.next_event().has_value());
}

TEST_F(RendezvousTest, ANodeThatFallsSilentIsLost) {
  Rendezvous rendezvous(options(2, 2));
  Channel node = introduce(rendezvous, facts(1, 2, 2));
  EXPECT_EQ(next_but_beats(node).kind, Kind::welcome);
  const NodeEvent lost = next_event(rendezvous);
  EXPECT_EQ(lost.kind, NodeEvent::Kind::lost);
  EXPECT_NE(lost.reason.find("nothing heard"), std::string::npos) << lost.reason;
}

TEST_F(RendezvousTest, ANodeThatJoinsARunningGenerationIsAnEvent) {
  Rendezvous rendezvous(options(1, 2));
  ASSERT_TRUE(rendezvous.gather(soon).has_value());
  Channel node = introduce(rendezvous, facts(1, 1, 2));
  EXPECT_EQ(next_event(rendezvous).kind, NodeEvent::Kind::joined);
}

TEST_F(RendezvousTest, TheEndOfAGenerationIsAcknowledged) {
  Rendezvous rendezvous(options(2, 2));
  Channel node = introduce(rendezvous, facts(1, 2, 2));
  EXPECT_EQ(next_but_beats(node).kind, Kind::welcome);
  ASSERT_TRUE(rendezvous.gather(soon).has_value());
  rendezvous.start_hosts("10.0.0.1:4000", 2);
  EXPECT_EQ(next_but_beats(node).kind, Kind::start);
  auto ending = std::async(std::launch::async, [&] { rendezvous.end_generation(); });
  EXPECT_EQ(next_but_beats(node).kind, Kind::end_generation);
  EXPECT_NE(ending.wait_for(std::chrono::milliseconds(50)), std::future_status::ready);
  node.send(NodeMessage{.kind = Kind::generation_ended}.encode());
  ending.get();
}

TEST_F(RendezvousTest, TheEndOfTheRunReachesEveryNode) {
  Rendezvous rendezvous(options(2, 2));
  auto node = std::make_unique<Channel>(introduce(rendezvous, facts(1, 2, 2)));
  EXPECT_EQ(next_but_beats(*node).kind, Kind::welcome);
  auto finishing = std::async(std::launch::async, [&] { rendezvous.finish(75); });
  const NodeMessage message = next_but_beats(*node);
  EXPECT_EQ(message.kind, Kind::finish);
  EXPECT_EQ(message.code, 75);
  node.reset();
  finishing.get();
  Channel late = introduce(rendezvous, facts(1, 2, 2));
  EXPECT_EQ(next_but_beats(late).kind, Kind::finish);
}

TEST(NodeMessage, SurvivesTheWayWhateverItsTextIs) {
  const NodeMessage message{.kind = Kind::host_ended, .number = 3, .text = "\xff and \"quotes\"\n"};
  const NodeMessage read = NodeMessage::decode(message.encode());
  EXPECT_EQ(read.kind, Kind::host_ended);
  EXPECT_EQ(read.number, 3);
  EXPECT_NE(read.text.find(" and \"quotes\"\n"), std::string::npos);
  for (const char* wrong :
       {"", "{}", "[1]", R"({"kind":99,"number":0,"code":0,"text":""})", R"({"kind":"join"})"})
    EXPECT_THROW(NodeMessage::decode(wrong), Error) << wrong;
}

}  // namespace
}  // namespace lockstep
