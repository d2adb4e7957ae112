// SPDX-License-Identifier: Apache-2.0
#include "lockstep/net/channel.h"

#include <future>
#include <gtest/gtest.h>
#include <thread>

#include "lockstep/net/addresses.h"
#include "lockstep/net/listener.h"
#include "support/relay.h"
#include "tests/net/channel_pair.h"

namespace lockstep {
namespace {

/// Sends one message through a relay that changes bytes after the handshake. Returns the receiver's error.
std::string receive_through(const Relay::Meddle& meddle) {
  const Secret secret = Secret::random();
  Listener listener("127.0.0.1", 0);
  Relay relay(listener.endpoint(), meddle);
  Pair pair(listener, secret, relay.endpoint());
  pair.connector_side->send("a message");
  std::string heard;
  return message_of([&] {
    while (auto message = pair.listener_side->receive(soon)) heard = *message;
  });
}

/// A change of frames only. The handshake's 80 bytes to the listener pass unchanged.
class FrameMeddler {
 public:
  explicit FrameMeddler(std::function<std::string(std::string)> change) : change_(std::move(change)) {}
  std::string operator()(std::string bytes, bool to_listener) {
    if (!to_listener) return bytes;
    const bool in_handshake = passed_ < 80;
    passed_ += bytes.size();
    return in_handshake ? bytes : change_(bytes);
  }

 private:
  std::function<std::string(std::string)> change_;
  size_t passed_ = 0;
};

TEST(Channel, CarriesMessagesBothWaysInOrder) {
  for (const std::string address : {"127.0.0.1", "::1"}) {
    const Secret secret = Secret::random();
    Listener listener(address, 0);
    Pair pair(listener, secret, listener.endpoint());
    for (const std::string text : {"one", "", "three"}) pair.connector_side->send(text);
    for (const std::string text : {"one", "", "three"})
      EXPECT_EQ(pair.listener_side->receive(soon).value(), text);
    pair.listener_side->send("back");
    EXPECT_EQ(pair.connector_side->receive(soon).value(), "back");
    EXPECT_EQ(Endpoint::parse(pair.connector_side->peer()).host, address);
    EXPECT_EQ(pair.connector_side->local_host(), address);
  }
}

TEST(Channel, BigMessagesArriveWholeAndTooBigOnesAreRefused) {
  const Secret secret = Secret::random();
  Listener listener("127.0.0.1", 0);
  Pair pair(listener, secret, listener.endpoint());
  const std::string big(Channel::most_bytes, 'x');
  auto sending = std::async(std::launch::async, [&] { pair.connector_side->send(big); });
  EXPECT_EQ(pair.listener_side->receive(soon).value(), big);
  sending.get();
  EXPECT_THROW(pair.connector_side->send(big + "y"), Error);
}

TEST(Channel, ReceiveGivesUpInTimeAndTellsTheEnd) {
  const Secret secret = Secret::random();
  Listener listener("127.0.0.1", 0);
  Pair pair(listener, secret, listener.endpoint());
  EXPECT_FALSE(pair.listener_side->receive(0).has_value());
  EXPECT_FALSE(pair.listener_side->receive(0.05).has_value());
  pair.connector_side->send("last words");
  pair.connector_side.reset();
  EXPECT_EQ(pair.listener_side->receive(soon).value(), "last words");
  EXPECT_THROW(pair.listener_side->receive(soon), ConnectionClosed);
  EXPECT_THROW(pair.listener_side->receive(0), ConnectionClosed);
}

TEST(Channel, SeveralMessagesReadAtOnceAreKept) {
  const Secret secret = Secret::random();
  Listener listener("127.0.0.1", 0);
  Pair pair(listener, secret, listener.endpoint());
  pair.connector_side->send("one");
  pair.connector_side->send("two");
  pair.connector_side.reset();
  EXPECT_EQ(pair.listener_side->receive(soon).value(), "one");
  EXPECT_EQ(pair.listener_side->receive(0).value(), "two");
  EXPECT_FALSE(pair.listener_side->has_buffered());
}

TEST(Channel, AnotherSecretIsRefusedOnBothSides) {
  Listener listener("127.0.0.1", 0);
  const std::string endpoint = listener.endpoint();
  auto connecting = std::async(std::launch::async, [&] {
    return message_of([&] { (void)connect_channel(endpoint, Secret::random(), soon); });
  });
  testing::internal::CaptureStderr();
  while (connecting.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    EXPECT_EQ(listener.accept(Secret::random(), 0.05), nullptr);
  EXPECT_NE(connecting.get().find("the other side has a different secret"), std::string::npos);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("refused 127.0.0.1:"), std::string::npos) << log;
  EXPECT_NE(log.find("it does not know the secret"), std::string::npos) << log;
}

TEST(Channel, AListenerThatDoesNotKnowTheSecretIsRefused) {
  // A false listener can only guess. It answers the proof with bytes of its own.
  const Secret secret = Secret::random();
  Listener listener("127.0.0.1", 0);
  int turn = 0;
  Relay relay(listener.endpoint(), [&](std::string bytes, bool to_listener) {
    if (!to_listener && ++turn == 2) bytes.assign(bytes.size(), 'p');
    return bytes;
  });
  auto connecting = std::async(std::launch::async, [&] {
    return message_of([&] { (void)connect_channel(relay.endpoint(), secret, soon); });
  });
  const auto channel = listener.accept(secret, soon);
  EXPECT_NE(connecting.get().find("a different secret"), std::string::npos);
}

TEST(Channel, TheSecretIsNeverOnTheWire) {
  const Secret secret = Secret::from_text("a-secret-that-is-easy-to-find-again");
  Listener listener("127.0.0.1", 0);
  Relay relay(listener.endpoint());
  Pair pair(listener, secret, relay.endpoint());
  pair.connector_side->send("hello");
  EXPECT_EQ(pair.listener_side->receive(soon).value(), "hello");
  const std::string bytes = relay.captured();
  EXPECT_NE(bytes.find("hello"), std::string::npos) << "the relay saw nothing";
  for (size_t at = 0; at + 6 <= secret.bytes().size(); ++at)
    EXPECT_EQ(bytes.find(secret.bytes().substr(at, 6)), std::string::npos);
}

TEST(Channel, AnAlteredFrameEndsIt) {
  EXPECT_NE(receive_through(FrameMeddler([](std::string bytes) {
              bytes[4] ^= 1;
              return bytes;
            })).find("altered"),
            std::string::npos);
}

TEST(Channel, ARepeatedFrameEndsIt) {
  EXPECT_NE(
      receive_through(FrameMeddler([](const std::string& bytes) { return bytes + bytes; })).find("repeated"),
      std::string::npos);
}

TEST(Channel, AnOversizedFrameEndsIt) {
  EXPECT_NE(receive_through(FrameMeddler([](std::string bytes) {
              bytes[0] = '\x7f';
              return bytes;
            })).find("longer than 16 MiB"),
            std::string::npos);
}

TEST(Channel, AFrameMirroredToItsSenderEndsIt) {
  const Secret secret = Secret::random();
  Listener listener("127.0.0.1", 0);
  std::string frame;
  std::atomic<bool> in_handshake{true};
  Relay relay(listener.endpoint(), [&](std::string bytes, bool to_listener) {
    if (!in_handshake && to_listener) frame = bytes;
    return !in_handshake && !to_listener ? frame : bytes;
  });
  Pair pair(listener, secret, relay.endpoint());
  in_handshake = false;
  pair.connector_side->send("to the listener");
  ASSERT_TRUE(pair.listener_side->receive(soon).has_value());
  pair.listener_side->send("anything");
  EXPECT_THROW(pair.connector_side->receive(soon), Error);
}

TEST(Channel, ARecordedConversationCannotBePlayedAgain) {
  const Secret secret = Secret::random();
  Listener listener("127.0.0.1", 0);
  std::string recorded;
  {
    Relay relay(listener.endpoint(), [&](std::string bytes, bool to_listener) {
      if (to_listener) recorded += bytes;
      return bytes;
    });
    Pair pair(listener, secret, relay.endpoint());
    pair.connector_side->send("start something");
    ASSERT_TRUE(pair.listener_side->receive(soon).has_value());
  }
  const Socket thief = plain_connection(listener.endpoint());
  thief.send(recorded, after(soon));
  testing::internal::CaptureStderr();
  EXPECT_EQ(listener.accept(secret, 0.5), nullptr);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("does not know the secret"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
