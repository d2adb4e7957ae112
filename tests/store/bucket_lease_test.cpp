// SPDX-License-Identifier: Apache-2.0
#include "lockstep/store/bucket_lease.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "lockstep/core/clock.h"
#include "lockstep/core/process.h"
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
  explicit OneObjectServer(Conditions conditions = Conditions::obeyed) : conditions_(conditions) {}

  std::string url() const { return server_.url(); }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return object_.value_or("");
  }
  void set_text(const std::string& text) {
    const std::lock_guard lock(mutex_);
    object_ = text;
    ++version_;
  }
  void set_down(bool is_down) { is_down_ = is_down; }
  /// Answers reads by weak tags, as a proxy that compresses does.
  void weaken_tags() { weak_ = true; }
  /// Cuts the connection after the next PUT was done, and all later ones until set_down(false).
  void lose_next_reply_and_go_down() { loses_reply_ = true; }
  /// Answers the next read by 404.
  void hide_once() { hides_ = true; }

 private:
  std::string answer(const std::string& request) {
    const std::lock_guard lock(mutex_);
    if (is_down_) return "";
    if (request.starts_with("GET"))
      return hides_.exchange(false) || !object_ ? http_reply("404 Not Found")
                                                : ok(*object_, (weak_ ? "W/" : "") + tag());
    const bool must_match = contains(request, "If-Match: "),
               must_be_new = contains(request, "If-None-Match: *");
    if ((must_match || must_be_new) && conditions_ == Conditions::unknown)
      return http_reply("501 Not Implemented", "<Error><Code>NotImplemented</Code></Error>");
    if (conditions_ == Conditions::obeyed) {
      if (must_match && !object_) return http_reply("404 Not Found", "<Error><Code>NoSuchKey</Code></Error>");
      const bool holds =
          must_be_new ? !object_ : !must_match || contains(request, "If-Match: " + tag() + "\r\n");
      if (!holds) return http_reply("412 Precondition Failed");
    }
    object_ = request.substr(request.find("\r\n\r\n") + 4);
    ++version_;
    if (!loses_reply_.exchange(false)) return ok("", tag());
    is_down_ = true;
    return "";
  }

  std::string tag() const { return concat("\"v", version_, "\""); }
  static std::string ok(const std::string& body, const std::string& tag) {
    return http_reply("200 OK", body, "ETag: " + tag + "\r\n");
  }

  Conditions conditions_;
  std::atomic<bool> is_down_{false}, loses_reply_{false}, weak_{false}, hides_{false};
  mutable std::mutex mutex_;
  std::optional<std::string> object_;
  int version_ = 0;
  HttpServer server_{[this](const std::string& request) { return answer(request); }};
};

class BucketLeaseTest : public S3Test {
 protected:
  std::unique_ptr<BucketLease> take(const OneObjectServer& server, const Owner& owner,
                                    double length_seconds = 0.6, double outage_seconds = 0.0) const {
    S3Options options = S3Options::from_environment();
    options.endpoint = server.url();
    options.retries = {.attempts = 2, .first_delay_seconds = 0.01, .outage_seconds = outage_seconds};
    return std::make_unique<BucketLease>(
        "snapshot.path", S3Address{"bucket", "run"}, owner,
        LeaseTerms{.length_seconds = length_seconds, .renewal_seconds = 0.05, .poll_seconds = 0.02}, options);
  }
};

/// A check a moment after a renewal does not ask the server.
bool eventually_lost(BucketLease& lease) {
  return eventually([&] {
    try {
      lease.check();
      return false;
    } catch (const Error&) {
      return true;
    }
  });
}

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

/// The lease of a process that was killed.
std::string killed_lease(const std::string& seconds) {
  return text_of(start_of("killed")) + "lease " + seconds + " 1\n";
}

TEST_F(BucketLeaseTest, IsOverWhenItIsNotRenewed) {
  OneObjectServer server;
  server.set_text(killed_lease("0.3"));
  take(server, start_of("b"))->check();
  expect_contains(server.text(), {"\"run\":\"b\""});
  server.weaken_tags();
  server.set_text(killed_lease("0.3"));
  take(server, start_of("b"))->check();
}

// A folder's owner leaves an empty file. It may have been copied to the bucket with the snapshots.
TEST_F(BucketLeaseTest, TheFileOfAFolderIsNoLease) {
  OneObjectServer server;
  for (const std::string& text : {std::string(), text_of(start_of("in a folder"))}) {
    server.set_text(text);
    take(server, start_of("b"), 30.0)->check();
  }
}

TEST_F(BucketLeaseTest, AnObjectOfOthersStays) {
  OneObjectServer server;
  for (const std::string text : {"alice\n", "{}\nlease 1 1\n", "{\"owner\": \"bob\"}"}) {
    server.set_text(text);
    expect_contains(user_error([&] { take(server, start_of("b")); }),
                    {"s3://bucket/run/.owner", "in the way"});
    EXPECT_EQ(server.text(), text);
  }
}

TEST_F(BucketLeaseTest, AWatcherTakesNoWrongReplyForTheEnd) {
  OneObjectServer server;
  const auto owner = take(server, start_of("a"), 3.0);
  server.hide_once();
  EXPECT_THROW(take(server, start_of("b")), OwnedByAnother);
  // The server is down for longer than the lease. Both come back.
  std::jthread outage([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    server.set_down(true);
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    server.set_down(false);
  });
  EXPECT_THROW(take(server, start_of("b"), 0.6, 10.0), OwnedByAnother);
  owner->check();
}

TEST_F(BucketLeaseTest, ALaterStartOfTheRunTakesItAtOnceAndTheEarlierOneStops) {
  OneObjectServer server;
  auto first = take(server, start_of("a", 0), 30.0);
  const Clock::time_point begin = Clock::now();
  auto second = take(server, start_of("a", 1), 30.0);
  EXPECT_LT(seconds_since(begin), 25.0);
  EXPECT_TRUE(eventually_lost(*first));
  expect_contains(error_of([&] { first->check(); }), {"s3://bucket/run", "no longer belongs"});
  EXPECT_THROW(first->check_recently(), Error);
  first.reset();
  second->check();
  expect_contains(server.text(), {"\"generation\":1"});
}

TEST_F(BucketLeaseTest, OutlastsAnOutageThatBeganWithItsRenewal) {
  for (const Conditions conditions : {Conditions::obeyed, Conditions::ignored}) {
    OneObjectServer server(conditions);
    const auto owner = take(server, start_of("a"));
    server.lose_next_reply_and_go_down();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    server.set_down(false);
    owner->check();
    owner->check();
    // Without conditions a pending renewal may overwrite the text of another start.
    if (conditions == Conditions::ignored) continue;
    server.set_text(killed_lease("30"));
    EXPECT_TRUE(eventually_lost(*owner));
    EXPECT_THROW(owner->check(), Error) << "a lost lease does not come back";
  }
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
