// SPDX-License-Identifier: Apache-2.0
#include "store/bucket_lease.h"

#include <atomic>
#include <mutex>

#include "core/clock.h"
#include "core/host.h"
#include "tests/store/aws_support.h"
#include "tests/store/start_of.h"
#include "tests/support/eventually.h"
#include "tests/support/user_error.h"

namespace lockstep {
namespace {

/// How a server treats the conditions of a PUT.
enum class Conditions { obeyed, ignored, unknown };

/// A server that keeps one object.
class OneObjectServer {
 public:
  explicit OneObjectServer(Conditions conditions) : conditions_(conditions) {}

  std::string url() const { return server_.url(); }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  void set_text(const std::string& text) {
    const std::lock_guard lock(mutex_);
    text_ = text;
    ++version_;
  }
  void set_down(bool is_down) { is_down_ = is_down; }
  /// Cuts the connection after the next PUT was done.
  void lose_next_reply() { loses_reply_ = true; }

 private:
  std::string answer(const std::string& request) {
    const std::lock_guard lock(mutex_);
    if (is_down_) return "";
    if (request.starts_with("GET")) return text_.empty() ? http_reply("404 Not Found") : ok(text_);
    if (request.starts_with("DELETE")) text_.clear();
    if (!request.starts_with("PUT")) return http_reply("204 No Content");
    const bool is_conditional = contains(request, "If-Match: ") || contains(request, "If-None-Match: ");
    if (is_conditional && conditions_ == Conditions::unknown)
      return http_reply("501 Not Implemented", "<Error><Code>NotImplemented</Code></Error>");
    if (conditions_ == Conditions::obeyed && contains(request, "If-None-Match: *") && !text_.empty())
      return http_reply("412 Precondition Failed");
    if (conditions_ == Conditions::obeyed && contains(request, "If-Match: ") && text_.empty())
      return http_reply("404 Not Found", "<Error><Code>NoSuchKey</Code></Error>");
    if (conditions_ == Conditions::obeyed && contains(request, "If-Match: ") &&
        !contains(request, "If-Match: " + tag()))
      return http_reply("412 Precondition Failed");
    text_ = request.substr(request.find("\r\n\r\n") + 4);
    ++version_;
    return loses_reply_.exchange(false) ? "" : ok("");
  }

  std::string tag() const { return concat("\"v", version_, "\""); }
  std::string ok(const std::string& body) const {
    return http_reply("200 OK", body, "ETag: " + tag() + "\r\n");
  }

  Conditions conditions_;
  std::atomic<bool> is_down_{false}, loses_reply_{false};
  mutable std::mutex mutex_;
  std::string text_;
  int version_ = 0;
  HttpServer server_{[this](const std::string& request) { return answer(request); }};
};

class BucketLeaseTest : public S3Test {
 protected:
  std::unique_ptr<BucketLease> take(const OneObjectServer& server, const Owner& owner,
                                    double length_seconds = 0.6) const {
    S3Options options = S3Options::from_environment();
    options.endpoint = server.url();
    options.retries = {.attempts = 2, .first_delay_seconds = 0.001};
    return std::make_unique<BucketLease>(
        "snapshot.path", S3Address{"bucket", "run"}, owner,
        LeaseTerms{.length_seconds = length_seconds, .renewal_seconds = 0.05, .poll_seconds = 0.02}, options);
  }
};

TEST_F(BucketLeaseTest, AnotherRunLearnsWhoHasItSinceWhen) {
  for (const Conditions conditions : {Conditions::obeyed, Conditions::ignored, Conditions::unknown}) {
    OneObjectServer server(conditions);
    testing::internal::CaptureStderr();
    auto owner = take(server, start_of("a"));
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("If-None-Match") == std::string::npos, conditions == Conditions::obeyed) << said;
    for (const char* run : {"b", "a"})
      expect_contains(
          user_error([&] { take(server, start_of(run)); }),
          {"snapshot.path", "s3://bucket/run", concat("process ", ::getpid(), " on ", host_name()),
           "since 20", "UTC", "snapshot.wait_minutes"});
    owner->check();
    owner.reset();
    const Clock::time_point begin = Clock::now();
    take(server, start_of("b"), 30.0);
    EXPECT_LT(seconds_since(begin), 25.0) << "a released lease is not watched";
  }
}

TEST_F(BucketLeaseTest, IsOverWhenNobodyRenewsIt) {
  OneObjectServer server(Conditions::obeyed);
  take(server, start_of("a"));
  std::string killed = server.text();
  killed.replace(killed.find("lease 0.000"), 11, "lease 0.300");
  server.set_text(killed);
  take(server, start_of("b"))->check();
  expect_contains(server.text(), {"\"run\":\"b\""});
  for (const char* text :
       {"?", "{}\nlease x 1\n", "{\"run\":7}\nlease 0.2 1\n", "{\"host\":\"h\"}\nlease -1 1\n"}) {
    OneObjectServer foreign(Conditions::obeyed);
    foreign.set_text(text);
    if (std::string(text).find("lease 0.2") == std::string::npos &&
        std::string(text).find("-1") == std::string::npos)
      continue;
    take(foreign, start_of("b"))->check();
  }
}

TEST_F(BucketLeaseTest, ALaterStartOfTheRunTakesItAtOnceAndTheEarlierOneStops) {
  for (const Conditions conditions : {Conditions::obeyed, Conditions::ignored}) {
    OneObjectServer server(conditions);
    auto first = take(server, start_of("a", 0), 30.0);
    const Clock::time_point begin = Clock::now();
    auto second = take(server, start_of("a", 1), 30.0);
    EXPECT_LT(seconds_since(begin), 25.0);
    expect_contains(error_of([&] { first->check(); }), {"s3://bucket/run", "no longer belongs"});
    EXPECT_TRUE(eventually([&] {
      try {
        first->check_recently();
        return false;
      } catch (const Error&) {
        return true;
      }
    }));
    first.reset();
    second->check();
    expect_contains(server.text(), {"\"generation\":1"});
  }
}

TEST_F(BucketLeaseTest, OutlastsAnOutageUnlessSomebodyTookIt) {
  OneObjectServer server(Conditions::obeyed);
  const auto owner = take(server, start_of("a"));
  server.set_down(true);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  server.set_down(false);
  owner->check();
  server.lose_next_reply();
  owner->check();
  owner->check();
  server.set_text(server.text());  // somebody wrote the same bytes: only the tag has changed
  EXPECT_THROW(owner->check(), Error);
  EXPECT_THROW(owner->check(), Error) << "a lost lease does not come back";
}

TEST_F(BucketLeaseTest, WaitsForTheOtherRunIfAsked) {
  OneObjectServer server(Conditions::obeyed);
  auto first = take(server, start_of("a"));
  std::jthread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    first.reset();
  });
  std::unique_ptr<BucketLease> second;
  wait_for_owner(60.0, [&] { second = take(server, start_of("b")); });
  second->check();
  EXPECT_THROW(wait_for_owner(0.0, [&] { take(server, start_of("c")); }), OwnedByAnother);
}

}  // namespace
}  // namespace lockstep
