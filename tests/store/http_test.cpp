// SPDX-License-Identifier: Apache-2.0
#include "lockstep/store/http.h"

#include <array>
#include <gtest/gtest.h>
#include <map>

#include "tests/store/aws_support.h"
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

TEST(HttpClient, EndsARequestThatCrawls) {
  // The server sends a byte each 0.1 s, so no second is without a byte.
  const HttpServer server([](const std::string&, int peer) {
    std::string piece = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
    while (::send(peer, piece.data(), piece.size(), MSG_NOSIGNAL) > 0) {
      piece = "a";
      ::usleep(100'000);
    }
    return std::string();
  });
  HttpClient client;
  EXPECT_THROW(client.perform({.url = server.url(), .stall_seconds = 1.0}), TransientError);
}

TEST(HttpClient, BoundsABodyBeforeItsMemory) {
  const HttpServer server(
      [](const std::string&) { return "HTTP/1.1 200 OK\r\nContent-Length: 60000000000\r\n\r\nabc"; });
  HttpClient client;
  EXPECT_THROW(client.perform({.url = server.url()}), TransientError);
  const HttpServer chatty([](const std::string& request) {
    return http_reply(contains(request, "/error") ? "404 Not Found" : "200 OK", std::string(1 << 20, 'a'));
  });
  try {
    client.perform({.url = chatty.url(), .most_bytes = 1000});
    ADD_FAILURE() << "the body has more bytes";
  } catch (const Error& problem) {
    EXPECT_STREQ(problem.what(), "the reply has more than 1000 bytes");
  }
  EXPECT_EQ(client.perform({.url = chatty.url() + "/error", .most_bytes = 1000}).body.size(),
            size_t{64} << 10);
}

TEST(HttpClient, TakesOnlyTheBytesOfTheRange) {
  const auto reply = [](const std::string& range, const std::string& body) {
    return HttpReply{.status = 206, .headers = {{"content-range", range}}, .body = body};
  };
  const auto cut = [](HttpReply whole, int64_t begin, int64_t bytes) {
    cut_to_range(whole, begin, bytes);
    return whole.body;
  };
  EXPECT_EQ(cut(reply("bytes 2-4/10", "cde"), 2, 3), "cde");
  EXPECT_EQ(cut(reply("bytes 8-9/10", "ij"), 8, 3), "ij") << "the object ends before the range";
  EXPECT_EQ(cut(reply("bytes 2-4/*", "cde"), 2, 3), "cde");
  EXPECT_EQ(cut({.status = 200, .headers = {}, .body = "abcdef"}, 2, 3), "cde");
  EXPECT_EQ(cut({.status = 200, .headers = {}, .body = "abcdef"}, 4, ObjectReader::all_bytes), "ef");
  EXPECT_EQ(cut({.status = 200, .headers = {}, .body = "abc"}, 7, 3), "");
  for (const auto& [range, body] : std::map<std::string, std::string>{{"bytes 2-4/10", "cd"},
                                                                      {"bytes 2-3/10", "cd"},
                                                                      {"bytes 0-2/10", "abc"},
                                                                      {"bytes 2-4/10 ", "cdefgh"},
                                                                      {"bytes */10", "cde"},
                                                                      {"", "cde"},
                                                                      {"2-4/10", "cde"},
                                                                      {"bytes 4-2/10", "cde"}})
    EXPECT_THROW(cut(reply(range, body), 2, 3), TransientError) << range;
}

}  // namespace
}  // namespace lockstep
