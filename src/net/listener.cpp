// SPDX-License-Identifier: Apache-2.0
#include "lockstep/net/listener.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/epoll.h>

#include "lockstep/core/log.h"
#include "lockstep/net/socket.h"

namespace lockstep {
namespace {

/// The number of the listening socket in events. Strangers are numbered from 1.
constexpr uint64_t door = 0;
/// The number of events that a call without time handles: a few milliseconds of work.
constexpr int most_events = 64;
constexpr double patience_seconds = 10.0;
constexpr double rest_seconds = 0.5;
constexpr double word_seconds = 1.0;

/// Adds or changes a descriptor that is watched. Events identify it by a number instead of a pointer, because
/// an event may outlive its stranger. Returns false, with errno, if that fails.
bool can_watch(int events, int change, int descriptor, uint64_t number, uint32_t kinds = EPOLLIN) {
  epoll_event event{};
  event.events = kinds;
  event.data.u64 = number;
  return ::epoll_ctl(events, change, descriptor, &event) == 0;
}

void watch_door(int events, int change, int door_descriptor, uint32_t kinds = EPOLLIN) {
  const bool is_watched = can_watch(events, change, door_descriptor, door, kinds);
  expect(is_watched, "cannot watch for connections: ", std::strerror(errno));
}

/// Returns true if all bytes were sent at once. The few bytes of a handshake fit into a fresh connection.
bool send_at_once(const Socket& socket, std::string_view bytes) {
  try {
    socket.send(bytes, Clock::now());
    return true;
  } catch (const ConnectionClosed&) {
    return false;
  }
}

}  // namespace

struct Listener::Stranger {
  Socket socket;
  std::string address;
  std::string nonce = random_bytes(handshake::nonce_bytes);
  std::string heard = {};
  Clock::time_point since = Clock::now();
};

Listener::Listener(const std::string& address, int port)
    : socket_(Socket::listen(Endpoint::parse(address, port))),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      // Most descriptors are reserved for sides that know the secret.
      most_strangers_(std::clamp<size_t>(descriptor_limit() / 8, 4, 4096)) {
  expect(bool(events_), "cannot make an epoll instance: ", std::strerror(errno));
  watch_door(events_.get(), EPOLL_CTL_ADD, socket_.descriptor());
}

Listener::~Listener() {
  next_word_ = {};
  log_refusals();
}

std::unique_ptr<Channel> Listener::accept(const Secret& secret, double timeout_seconds) {
  const Clock::time_point deadline = after(timeout_seconds);
  for (int events = 0;; ++events) {
    dismiss_silent();
    log_refusals();
    go_on();
    if (events >= most_events && Clock::now() >= deadline) return nullptr;
    // Ready connections take turns, so that no proof waits for more than one newcomer.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    epoll_event event{};
    const int ready = ::epoll_wait(events_.get(), &event, 1, int(std::clamp<int64_t>(left, 0, 200)));
    expect(ready >= 0 || errno == EINTR, "cannot wait for connections: ", std::strerror(errno));
    if (ready == 0 && Clock::now() >= deadline) return nullptr;
    if (ready <= 0) continue;
    const uint64_t number =
        event.data.u64;  // epoll_event is packed, so references to its members are not aligned
    if (number == door) {
      welcome();
      continue;
    }
    const auto stranger = strangers_.find(number);
    if (stranger == strangers_.end()) continue;
    if (auto channel = hear(stranger, secret)) return channel;
  }
}

void Listener::welcome() {
  SocketAddress peer;
  Socket socket = socket_.accept(peer);
  if (!socket) {
    const bool lacks_something = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (lacks_something) rest(errno);
    return;
  }
  if (strangers_.size() >= most_strangers_) dismiss(strangers_.begin(), "too many others wait");
  const auto stranger =
      strangers_
          .emplace(++last_number_, Stranger{.socket = std::move(socket), .address = peer.endpoint().text()})
          .first;
  if (!can_watch(events_.get(), EPOLL_CTL_ADD, stranger->second.socket.descriptor(), stranger->first)) {
    rest(errno);
    dismiss(stranger, "the system has no resources left to watch it");
    return;
  }
  if (!send_at_once(stranger->second.socket, handshake::greeting(stranger->second.nonce)))
    dismiss(stranger, "it hung up");
}

std::unique_ptr<Channel> Listener::hear(Strangers::iterator place, const Secret& secret) {
  constexpr size_t wanted = handshake::greeting_bytes + handshake::proof_bytes;
  Stranger& stranger = place->second;
  bool hung_up = false;
  try {
    if (!stranger.socket.receive(stranger.heard, wanted - stranger.heard.size())) return nullptr;
  } catch (const ConnectionClosed&) {
    hung_up = true;
  }
  const size_t compared = std::min(stranger.heard.size(), handshake::protocol.size());
  const bool speaks = stranger.heard.compare(0, compared, handshake::protocol.substr(0, compared)) == 0;
  if (hung_up || !speaks) {
    dismiss(place, speaks ? "it hung up before it proved that it knows the secret" : "it is not lockrun");
    return nullptr;
  }
  if (stranger.heard.size() < wanted) return nullptr;
  const handshake::Nonces nonces{.connector = handshake::nonce_of(stranger.heard),
                                 .listener = stranger.nonce};
  const std::string proof = stranger.heard.substr(handshake::greeting_bytes);
  if (!equal_in_constant_time(proof, nonces.connector_proof(secret))) {
    // An honest stranger learns from these zeros that the secrets differ. A dishonest one learns nothing.
    send_at_once(stranger.socket, std::string(handshake::proof_bytes, '\0'));
    dismiss(place, "it does not know the secret");
    return nullptr;
  }
  if (!send_at_once(stranger.socket, nonces.listener_proof(secret))) {
    dismiss(place, "it hung up");
    return nullptr;
  }
  ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, stranger.socket.descriptor(), nullptr);
  auto channel = std::make_unique<Channel>(std::move(stranger.socket), nonces.listener_keys(secret));
  strangers_.erase(place);
  return channel;
}

void Listener::dismiss(Strangers::iterator stranger, const std::string& reason) {
  ++refusals_;
  last_refusal_ = concat(stranger->second.address, ": ", reason);
  // Closing the socket is not enough, because a child that was forked meanwhile may hold it a little longer.
  ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, stranger->second.socket.descriptor(), nullptr);
  strangers_.erase(stranger);
}

void Listener::dismiss_silent() {
  while (!strangers_.empty() && seconds_since(strangers_.begin()->second.since) > patience_seconds)
    dismiss(strangers_.begin(), "it did not prove in time that it knows the secret");
}

/// Stops watching for new connections for a while. Otherwise epoll would report a waiting one repeatedly.
void Listener::rest(int problem) {
  watch_door(events_.get(), EPOLL_CTL_MOD, socket_.descriptor(), 0);
  resting_until_ = after(rest_seconds);
  if (has_told_of_resting_) return;
  has_told_of_resting_ = true;
  const std::string reason = std::strerror(problem);
  const std::string advice = problem == EMFILE
                                 ? concat("; this process may have ", descriptor_limit(),
                                          " open files: raise that with  ulimit -n  before it starts")
                                 : "";
  log_warning(concat("no new connections at ", endpoint(), " for now: ", reason, advice));
}

void Listener::go_on() {
  if (!resting_until_ || Clock::now() < *resting_until_) return;
  resting_until_.reset();
  watch_door(events_.get(), EPOLL_CTL_MOD, socket_.descriptor());
}

void Listener::log_refusals() {
  if (refusals_ == 0 || Clock::now() < next_word_) return;
  const std::string who = refusals_ == 1 ? "" : concat(refusals_, " strangers, the last ");
  log_warning(concat("refused ", who, last_refusal_));
  refusals_ = 0;
  next_word_ = after(word_seconds);
}

}  // namespace lockstep
