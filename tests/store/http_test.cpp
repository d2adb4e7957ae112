// SPDX-License-Identifier: Apache-2.0
#include "store/http.h"

#include <array>
#include <gtest/gtest.h>

#include "tests/support/http_server.h"

namespace lockstep {
namespace {

TEST(HttpClient, SendsABodyFromItsStartWhereAKeptConnectionDies) {
  const HttpServer server([count = 0](const std::string&) mutable -> std::string {
    return ++count == 2 ? "" : "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n";
  });
  const std::string text = "the whole ", more = "body";
  const std::array pieces = {std::as_bytes(std::span(text)), std::as_bytes(std::span(more))};
  HttpClient client;
  EXPECT_EQ(client.perform({.url = server.url()}).status, 200);
  EXPECT_EQ(client.perform({.method = "PUT", .url = server.url(), .body = pieces}).status, 200);
  ASSERT_EQ(server.requests().size(), 3u);
  for (const size_t i : {1, 2})
    EXPECT_TRUE(server.requests()[i].ends_with("\r\n\r\nthe whole body")) << server.requests()[i];
}

}  // namespace
}  // namespace lockstep
