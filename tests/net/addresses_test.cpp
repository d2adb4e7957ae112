// SPDX-License-Identifier: Apache-2.0
#include "lockstep/net/addresses.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/net/socket.h"

namespace lockstep {
namespace {

TEST(Endpoint, IsReadInEverySpelling) {
  const auto read = [](const std::string& text) {
    const Endpoint endpoint = Endpoint::parse(text, 29400);
    return concat(endpoint.host, " ", endpoint.port);
  };
  EXPECT_EQ(read("node0:1234"), "node0 1234");
  EXPECT_EQ(read("node0"), "node0 29400");
  EXPECT_EQ(read("[fe80::1]:12"), "fe80::1 12");
  EXPECT_EQ(read("[fe80::1]"), "fe80::1 29400");
  EXPECT_EQ(read("fe80::1"), "fe80::1 29400");
  for (const char* wrong : {"node0:", "node0:x", "node0:70000", ":12", "", "[::1", "[::1]7", "[::1]:7:8"})
    EXPECT_THROW(Endpoint::parse(wrong, 29400), UserError) << wrong;
  EXPECT_THROW(Endpoint::parse("node0"), UserError);
  EXPECT_EQ(Endpoint::parse("[::1]:7").text(), "[::1]:7");
}

TEST(Interfaces, LoopbackAndLinkLocalAddressesAreNotShared) {
  const auto shared = [](const std::string& number) {
    return is_shared(resolve({.host = number, .port = 1}).at(0));
  };
  for (const char* number : {"127.0.0.1", "127.0.1.1", "0.0.0.0", "169.254.1.1", "::1", "::", "fe80::1"})
    EXPECT_FALSE(shared(number)) << number;
  for (const char* number : {"10.0.0.1", "192.168.1.1", "fd00::1", "2001:db8::1", "::1:0:0:0"})
    EXPECT_TRUE(shared(number)) << number;
}

TEST(Interfaces, ThePortsProcessIsFound) {
  const Socket socket = Socket::listen({.host = "127.0.0.1"});
  const std::string process = process_on_port(socket.address().port);
  EXPECT_NE(process.find(concat("(pid ", ::getpid(), ")")), std::string::npos) << process;
}

}  // namespace
}  // namespace lockstep
