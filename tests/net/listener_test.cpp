// SPDX-License-Identifier: Apache-2.0
#include "lockstep/net/listener.h"

#include <cerrno>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <regex>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>

#include "lockstep/net/addresses.h"
#include "support/relay.h"
#include "tests/net/channel_pair.h"

namespace lockstep {
namespace {

bool is_readable(int descriptor, double seconds = 0.0) {
  pollfd entry{descriptor, POLLIN, 0};
  return ::poll(&entry, 1, int(seconds * 1000)) == 1;
}

/// Returns whether the other side has closed the connection.
bool is_closed(const Socket& socket) {
  std::string heard;
  try {
    while (socket.receive(heard, 256)) continue;
    return false;
  } catch (const ConnectionClosed&) {
    return true;
  }
}

/// Returns this process's descriptor of the listener's only connection.
int accepted_descriptor(const Listener& listener) {
  for (int descriptor = 3; descriptor < 1024; ++descriptor) {
    SocketAddress peer, own;
    if (::getpeername(descriptor, peer.get(), &peer.size) != 0) continue;
    if (::getsockname(descriptor, own.get(), &own.size) != 0) continue;
    if (own.endpoint().text() == listener.endpoint()) return descriptor;
  }
  return -1;
}

/// Returns the number of refused strangers that a log reports.
int refusals_in(const std::string& log) {
  int count = 0;
  const std::regex line("refused (?:(\\d+) strangers, the last )?127");
  for (std::sregex_iterator match(log.begin(), log.end(), line), end; match != end; ++match)
    count += (*match)[1].matched ? std::stoi((*match)[1]) : 1;
  return count;
}

/// Returns the result of the body in a child process, which has 30 seconds.
bool holds_in_a_process(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    ::_exit(body() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Listener, StrangersThatSayNothingOrGarbageKeepNobodyWaiting) {
  const Secret secret = Secret::random();
  Listener listener("127.0.0.1", 0);
  std::vector<Socket> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(plain_connection(listener.endpoint()));
    if (i % 3 == 1) strangers.back().send("GET / HTTP/1.1\r\n\r\n", after(soon));
    if (i % 3 == 2) strangers.back().send("lockstep-chan-1\nshort", after(soon));
    if (i % 50 == 0) strangers.back() = {};
    EXPECT_EQ(listener.accept(secret, 0), nullptr);
  }
  testing::internal::CaptureStderr();
  Pair pair(listener, secret, listener.endpoint());
  testing::internal::GetCapturedStderr();
  pair.connector_side->send("still here");
  EXPECT_EQ(pair.listener_side->receive(soon).value(), "still here");
}

TEST(Listener, ItsDescriptorWakesPollForEveryStepOfAHandshake) {
  const Secret secret = Secret::random();
  Listener listener("127.0.0.1", 0);
  auto connecting = std::async(std::launch::async, [&] {
    return std::make_unique<Channel>(connect_channel(listener.endpoint(), secret, soon));
  });
  std::unique_ptr<Channel> channel;
  for (int steps = 0; channel == nullptr && steps < 100; ++steps) {
    pollfd entry{listener.descriptor(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, int(soon * 1000)), 1);
    channel = listener.accept(secret, 0);
  }
  ASSERT_NE(channel, nullptr);
  connecting.get();
}

TEST(Listener, ATakenPortIsNamed) {
  Listener listener("127.0.0.1", 0);
  const int port = Endpoint::parse(listener.endpoint()).port;
  const std::string message = message_of([&] { Listener("127.0.0.1", port); });
  EXPECT_NE(message.find("127.0.0.1:" + std::to_string(port)), std::string::npos) << message;
  EXPECT_NE(message.find("in use"), std::string::npos) << message;
}

TEST(Listener, NobodyThereIsAnError) {
  std::string endpoint;
  { endpoint = Listener("127.0.0.1", 0).endpoint(); }
  const std::string message = message_of([&] { (void)connect_channel(endpoint, Secret::random(), soon); });
  EXPECT_NE(message.find(endpoint), std::string::npos) << message;
  EXPECT_NE(message.find("refused"), std::string::npos) << message;
}

TEST(Socket, AnAddressOfAnotherHostIsNamedWithTheReason) {
  const Socket listening = Socket::listen({.host = "127.0.0.1"});
  const SocketAddress there = resolve(listening.address()).at(0);
  errno = 0;
  const std::string message = message_of([&] { Socket::connect(there, after(soon), "192.0.2.1"); });
  EXPECT_EQ(message, "cannot use the address 192.0.2.1: Cannot assign requested address");
}

TEST(Listener, OneThatNeverAnswersIsGivenUp) {
  const Socket deaf = Socket::listen({.host = "127.0.0.1"});
  const std::string endpoint = deaf.address().text();
  const std::string message = message_of([&] { (void)connect_channel(endpoint, Secret::random(), 0.2); });
  EXPECT_NE(message.find("no answer in time"), std::string::npos) << message;
}

TEST(Listener, AConnectionThatAForkedProcessStillHoldsIsHeardNoMore) {
  const Secret secret = Secret::random();
  Listener listener("127.0.0.1", 0);
  const Socket stranger = plain_connection(listener.endpoint());
  ASSERT_TRUE(is_readable(listener.descriptor(), soon));
  EXPECT_EQ(listener.accept(secret, 0), nullptr);
  // A child process has such a copy between fork and exec.
  const Descriptor copy(::dup(accepted_descriptor(listener)));
  ASSERT_TRUE(bool(copy));
  stranger.send("GET / HTTP/1.1\r\n\r\n", after(soon));
  ASSERT_TRUE(is_readable(listener.descriptor(), soon));
  EXPECT_EQ(listener.accept(secret, 0), nullptr);
  stranger.send("more", after(soon));
  ASSERT_TRUE(is_readable(copy.get(), soon));
  EXPECT_FALSE(is_readable(listener.descriptor()));
  EXPECT_EQ(listener.accept(secret, 0), nullptr);
}

TEST(Listener, ACallLooksAtAFewStrangersOnly) {
  const Secret secret = Secret::random();
  Listener listener("127.0.0.1", 0);
  std::vector<Socket> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(plain_connection(listener.endpoint()));
  EXPECT_EQ(listener.accept(secret, 0), nullptr);
  EXPECT_TRUE(is_readable(listener.descriptor())) << "one call handled all of them";
  while (is_readable(listener.descriptor())) EXPECT_EQ(listener.accept(secret, 0), nullptr);
}

TEST(Listener, ManyRefusalsAreAFewLines) {
  const Secret secret = Secret::random();
  testing::internal::CaptureStderr();
  {
    Listener listener("127.0.0.1", 0);
    for (int i = 0; i < 500; ++i) {
      const Socket stranger = plain_connection(listener.endpoint());
      stranger.send("GET / HTTP/1.1\r\n\r\n", after(soon));
      while (!is_closed(stranger)) EXPECT_EQ(listener.accept(secret, 0), nullptr);
    }
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(refusals_in(log), 500) << log;
  EXPECT_LT(std::count(log.begin(), log.end(), '\n'), 50) << log;
  EXPECT_NE(log.find("it is not lockrun"), std::string::npos) << log;
}

TEST(Listener, AnHonestNewcomerComesThroughACrowdOfSilentOnes) {
  const Secret secret = Secret::random();
  testing::internal::CaptureStderr();
  // With a limit of 400 descriptors, strangers get 50.
  EXPECT_TRUE(holds_in_a_process([&] {
    const rlimit few{.rlim_cur = 400, .rlim_max = 400};
    ::setrlimit(RLIMIT_NOFILE, &few);
    Listener listener("127.0.0.1", 0);
    std::vector<Socket> crowd;
    for (int i = 0; i < 300; ++i) crowd.push_back(plain_connection(listener.endpoint()));
    Pair pair(listener, secret, listener.endpoint());
    pair.connector_side->send("here");
    const auto closed = std::count_if(crowd.begin(), crowd.end(), is_closed);
    return pair.listener_side->receive(soon) == "here" && closed >= 250;
  }));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("too many others wait"), std::string::npos);
}

TEST(Listener, WithoutDescriptorsItWaitsForSome) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer needs descriptors to look at what it checks";
#endif
  const Secret secret = Secret::random();
  testing::internal::CaptureStderr();
  EXPECT_TRUE(holds_in_a_process([&] {
    const rlimit few{.rlim_cur = 400, .rlim_max = 400};
    ::setrlimit(RLIMIT_NOFILE, &few);
    Listener listener("127.0.0.1", 0);
    auto connecting = std::async(std::launch::async, [&] {
      return std::make_unique<Channel>(connect_channel(listener.endpoint(), secret, soon));
    });
    if (!is_readable(listener.descriptor(), soon)) return false;
    std::vector<Descriptor> all;
    do all.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    while (all.back());
    for (int i = 0; i < 10; ++i)
      if (listener.accept(secret, 0) != nullptr) return false;
    // A caller that polls must not be woken repeatedly.
    if (is_readable(listener.descriptor())) return false;
    all.clear();
    const auto channel = listener.accept(secret, soon);
    connecting.get();
    return channel != nullptr;
  }));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_NE(log.find("ulimit -n"), std::string::npos) << log;
}

TEST(Listener, WhoIsTurnedAwayComesAgain) {
  const Secret secret = Secret::random();
  Listener listener("127.0.0.1", 0);
  const Relay relay(listener.endpoint(), {}, 2);
  Pair pair(listener, secret, relay.endpoint());
  pair.connector_side->send("at last");
  EXPECT_EQ(pair.listener_side->receive(soon).value(), "at last");
}

}  // namespace
}  // namespace lockstep
