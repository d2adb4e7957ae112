// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/hosting/host_links.h"

namespace lockstep {
namespace {

const RankMap three_nodes{.nodes = {{"a", {0, 1}}, {"b", {2}}, {"c", {3, 4}}}};

TEST(Fences, EndWhenEveryNodeWithAParticipantHasContributed) {
  Fences fences(three_nodes);
  EXPECT_FALSE(fences.add(2, "", "c"));
  EXPECT_FALSE(fences.add(0, "", "a"));
  const auto fence = fences.add(1, "", "b");
  ASSERT_TRUE(fence);
  EXPECT_EQ(fence->nodes, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(fence->data, "abc") << "the order of the nodes, not of their messages";
  EXPECT_FALSE(fences.add(1, "", "again")) << "the next fence begins";
}

TEST(Fences, OfOtherParticipantsAreIndependent) {
  Fences fences(three_nodes);
  EXPECT_FALSE(fences.add(0, "", "all"));
  EXPECT_FALSE(fences.add(0, "1,3", "some"));
  const auto some = fences.add(2, "1,3", "more");
  ASSERT_TRUE(some);
  EXPECT_EQ(some->nodes, (std::vector<int>{0, 2}));
  EXPECT_EQ(some->data, "somemore");
  EXPECT_TRUE(fences.add(1, "2", "alone"));
}

// A node may enter the next fence before the others have entered this one.
TEST(Fences, AreTakenInTheOrderOfEachNode) {
  Fences fences(three_nodes);
  EXPECT_FALSE(fences.add(0, "0,2", "first "));
  EXPECT_FALSE(fences.add(0, "0,2", "second "));
  EXPECT_EQ(fences.add(1, "0,2", "1").value().data, "first 1");
  EXPECT_EQ(fences.add(1, "0,2", "2").value().data, "second 2");
}

TEST(Fences, OfRanksThatDoNotExistAreRefused) {
  Fences fences(three_nodes);
  for (const char* participants : {"5", "-1", "0,x", "3", "0,,1"})
    EXPECT_THROW(fences.add(1, participants, ""), Error) << participants;
}

}  // namespace
}  // namespace lockstep
