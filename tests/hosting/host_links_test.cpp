// SPDX-License-Identifier: Apache-2.0
#include "lockstep/hosting/host_links.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "net/channel_pair.h"

namespace lockstep {
namespace {

using Kind = HostMessage::Kind;

/// Two nodes of one name, whose hosts are here.
class HostLinksTest : public testing::Test {
 protected:
  /// Connects the host of a node and returns its end.
  std::unique_ptr<Channel> connect(int node) {
    Pair pair(listener_, secret_, listener_.endpoint());
    links_.add(std::move(pair.listener_side), concat(host_greeting, node));
    return std::move(pair.connector_side);
  }
  static HostMessage next(Channel& host) { return HostMessage::decode(host.receive(soon).value()); }
  void send(Channel& host, const HostMessage& message) {
    host.send(message.encode());
    wait_for_any(links_.descriptors(), soon);
    EXPECT_EQ(links_.attend(), "");
  }

  Secret secret_ = Secret::random();
  Listener listener_{"127.0.0.1", 0};
  HostLinks links_{std::vector<RankMap::Node>{{"same", {0, 1}}, {"same", {2}}}};
};

TEST_F(HostLinksTest, HostsGetTheMapOfRanks) {
  EXPECT_EQ(links_.attend(), "") << "none has connected yet";
  const auto first = connect(0);
  const auto second = connect(1);
  const HostMessage here = next(*first), there = next(*second);
  EXPECT_EQ(here.kind, Kind::map);
  EXPECT_EQ(here.map.local_ranks(), (std::vector<int>{0, 1}));
  EXPECT_EQ(there.map.local_ranks(), (std::vector<int>{2}));
  EXPECT_EQ(there.map.name_space, here.map.name_space);
  EXPECT_NE(there.map.nodes[0].host, there.map.nodes[1].host) << "PMIx tells nodes apart by name";
}

TEST_F(HostLinksTest, FencesAndRequestsReachTheOtherNode) {
  const auto first = connect(0);
  const auto second = connect(1);
  next(*first), next(*second);
  send(*first, {.kind = Kind::fence, .data = "00"});
  send(*second, {.kind = Kind::fence, .data = "ff"});
  for (Channel* host : {first.get(), second.get()}) {
    const HostMessage over = next(*host);
    EXPECT_EQ(over.kind, Kind::fenced);
    EXPECT_EQ(over.data, "00ff");
  }
  send(*second, {.kind = Kind::fetch, .number = 7, .rank = 1});
  HostMessage request = next(*first);
  EXPECT_EQ(request.kind, Kind::fetch);
  EXPECT_EQ(request.rank, 1);
  request.kind = Kind::fetched;
  request.data = "0a";
  send(*first, request);
  const HostMessage answer = next(*second);
  EXPECT_EQ(answer.kind, Kind::fetched);
  EXPECT_EQ(answer.number, 7);
  EXPECT_EQ(answer.data, "0a");
}

TEST_F(HostLinksTest, AHostThatIsGoneOrSendsNonsenseIsNamed) {
  auto first = connect(0);
  const auto second = connect(1);
  second->send(HostMessage{.kind = Kind::fetch, .rank = 9}.encode());
  wait_for_any(links_.descriptors(), soon);
  EXPECT_EQ(links_.attend(), "lockrun_host on same-1: it asks for rank 9");
  first.reset();
  wait_for_any(links_.descriptors(), soon);
  EXPECT_EQ(links_.attend(), "lockrun_host on same ended before its ranks did");
  EXPECT_THROW(connect(1), Error) << "a second host of a node";
  EXPECT_THROW(connect(2), Error) << "there are two nodes";
}

TEST_F(HostLinksTest, TheEndReachesHostsThatConnectLater) {
  const auto first = connect(0);
  EXPECT_EQ(next(*first).kind, Kind::map);
  links_.end();
  EXPECT_EQ(next(*first).kind, Kind::end);
  const auto second = connect(1);
  EXPECT_EQ(next(*second).kind, Kind::end);
}

TEST(HostMessage, ComesBackAsItWasAndAnotherIsAnError) {
  const HostMessage message{
      .kind = Kind::map, .participants = "0,1", .map = {.name_space = "x", .nodes = {{"a", {0}}}, .here = 0}};
  EXPECT_EQ(HostMessage::decode(message.encode()).encode(), message.encode());
  for (const char* wrong : {"", "{}", R"({"kind":7})", R"({"kind":"beat"})"})
    EXPECT_THROW(HostMessage::decode(wrong), Error) << wrong;
}

}  // namespace
}  // namespace lockstep
