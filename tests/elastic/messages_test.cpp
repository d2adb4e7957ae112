// SPDX-License-Identifier: Apache-2.0
#include "lockstep/elastic/messages.h"

#include <gtest/gtest.h>

#include "tests/support/user_error.h"

namespace lockstep {
namespace {

TEST(Messages, ComeBackAsTheyWere) {
  FlightRecord last{.sequence = 17, .bytes = 64};
  std::copy_n("all_gather", 11, last.operation);
  RankReport report{.rank = 3, .host = "a \"host\"", .last_lines = {"one", "two"}, .last_collective = last};
  report.ending.signal = 9;
  EXPECT_EQ(to_json(report_from_json(to_json(report))), to_json(report));
  EXPECT_EQ(report_from_json(to_json(report)).ending.signal, 9);
  const RankPlan plan{.command = {"train", "--x"}, .environment = {{"A", "1"}}, .folder = "/tmp"};
  EXPECT_EQ(to_json(plan_from_json(to_json(plan))), to_json(plan));
  const NodeMessage message{.kind = NodeMessage::Kind::finish, .code = -3, .facts = {.node_rank = 2}};
  EXPECT_EQ(NodeMessage::decode(message.encode()).encode(), message.encode());
}

// Another process sent them, so they are an Error: a restart may help. nlohmann casts any number to an
// integer.
TEST(Messages, OfAnotherKindAreRefusedByField) {
  const std::string good = NodeMessage{}.encode();
  for (const auto& [from, to, problem] : std::vector<std::array<std::string, 3>>{
           {"\"kind\":3", "\"kind\":10", "kind is 10: it must be a whole number from 0 to 9"},
           {"\"kind\":3", "\"kind\":1e30", "kind is 1e+30"},
           {"\"code\":0", "\"code\":4294967296", "code is 4294967296"},
           {"\"slots\":1", "\"slots\":0.5", "facts.slots is 0.5"},
           {"\"text\":\"\"", "\"text\":[]", "text is []: it must be a text"},
           {"\"code\":0,", "", "code is missing"}}) {
    std::string text = good;
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    expect_contains(error_of([&] { NodeMessage::decode(text); }), {"a message between nodes", problem});
    EXPECT_EQ(user_error([&] {
                try {
                  NodeMessage::decode(text);
                } catch (const UserError&) {
                  throw;
                } catch (const Error&) {
                }
              }),
              "(nothing was thrown)");
  }
  expect_contains(error_of([] { report_from_json(std::string(1'000'000, '[')); }),
                  {"a keeper's report", "64 levels"});
}

}  // namespace
}  // namespace lockstep
