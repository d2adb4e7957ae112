// SPDX-License-Identifier: Apache-2.0
#include "lockstep/elastic/rendezvous.h"

#include <algorithm>

#include "lockstep/core/clock.h"
#include "lockstep/core/descriptor.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/process.h"
#include "lockstep/elastic/launchers.h"
#include "lockstep/net/addresses.h"

namespace lockstep {
namespace {

using Kind = NodeMessage::Kind;

constexpr double acknowledge_seconds = 8.0;
constexpr double settling_seconds = 10.0;
constexpr std::chrono::seconds word_interval{10};

/// Returns advice for the case that the port of node 0 is in use.
std::string advice(const std::string& process, const NodeOptions& options) {
  const std::string other_port = "give another port with --rdzv-endpoint on every node";
  if (!process.starts_with("lockrun ")) return other_port;
  const std::string number = options.node_rank < 0
                                 ? "without --node-rank every lockrun on this host is node 0"
                                 : "there is one node 0";
  return concat(number,
                ": if this one is to join, start it with --node-rank 1 or higher; if it is another run, ",
                other_port);
}

Listener listen_at(const std::string& address, const NodeOptions& options) {
  const int port = Endpoint::parse(options.endpoint, default_rendezvous_port).port;
  try {
    return {address, port};
  } catch (const UserError& failure) {
    const std::string process = process_on_port(port);
    const std::string who = process.empty() ? "" : concat(": ", process, " uses it");
    throw UserError(concat(failure.what(), who, "; ", advice(process, options)));
  }
}

}  // namespace

Rendezvous::Rendezvous(const NodeOptions& options)
    : options_(options),
      secret_(run_secret(options)),
      address_(rendezvous_address(options)),
      listener_(listen_at(address_, options)),
      event_signal_(event_descriptor(EFD_SEMAPHORE)),
      wake_(event_descriptor()) {
  log_info(concat("run ", options_.id, ": nodes meet at ", endpoint()));
  thread_ = std::thread([this] { serve(); });
}

Rendezvous::~Rendezvous() {
  if (!finish_code_) finish(1);
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

std::optional<JobLayout> Rendezvous::gather(double seconds) {
  std::unique_lock lock(mutex_);
  const Clock::time_point until = after(seconds);
  if (!gathering_since_) gathering_since_ = last_word_ = Clock::now();
  while (true) {
    const int here = usable_nodes();
    const bool called = seconds_since(last_change_) >= options_.last_call_seconds;
    if (here >= options_.most_nodes || (here >= options_.least_nodes && called)) {
      gathering_since_.reset();
      is_running_ = true;
      return placement();
    }
    if (here < options_.least_nodes && seconds_since(*gathering_since_) >= options_.timeout_seconds)
      throw Error(concat(
          "gave up after ", options_.timeout_seconds, " s: ", missing(), " did not join at ", endpoint(),
          ": is lockrun running there with this --rdzv-endpoint, and does a firewall let it through?"));
    if (Clock::now() >= last_word_ + word_interval) {
      log_info(concat("waiting at ", endpoint(), " for ", missing(), "; ", here, " of ", options_.least_nodes,
                      ":", options_.most_nodes, " nodes have joined"));
      last_word_ = Clock::now();
    }
    if (Clock::now() >= until) return std::nullopt;
    changed_.wait_until(lock, std::min(until, Clock::now() + std::chrono::milliseconds(200)));
  }
}

std::string Rendezvous::missing() {
  std::string text;
  for (int rank = 1; rank < options_.most_nodes; ++rank)
    if (member_of(rank) == nullptr) text += concat(text.empty() ? "node " : ", node ", rank);
  return text;
}

JobLayout Rendezvous::placement() {
  members_.sort(
      [](const Member& left, const Member& right) { return left.facts.node_rank < right.facts.node_rank; });
  JobLayout placement{.hosts = {{host_name(), options_.slots}},
                      .runs_lockrun = true,
                      .environment = network_environment(address_),
                      .address = address_};
  for (Member& member : members_) {
    if (is_left_out(member)) continue;
    member.place = static_cast<int>(placement.hosts.size());
    placement.hosts.push_back(
        {.name = member.facts.host, .ranks = member.facts.slots, .process = member.facts.process});
  }
  return placement;
}

int Rendezvous::usable_nodes() const {
  return 1 + int(std::ranges::count_if(members_, [&](const Member& one) { return !is_left_out(one); }));
}

bool Rendezvous::leave_out(const JobLayout::Host& host) {
  const std::lock_guard lock(mutex_);
  if (host.process.empty() || !left_out_.insert(host.process).second) return false;
  const bool are_enough = usable_nodes() >= options_.least_nodes;
  if (!are_enough) left_out_.erase(host.process);
  return are_enough;
}

void Rendezvous::start_hosts(const std::string& endpoint, int nodes) {
  const std::lock_guard lock(mutex_);
  for (Member& member : members_) {
    if (member.place == 0 || member.place >= nodes) continue;
    member.generation_ended = false;
    send(member, {.kind = Kind::start, .number = member.place, .text = endpoint});
  }
}

std::optional<NodeEvent> Rendezvous::next_event() {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) return std::nullopt;
  eventfd_t ignored = 0;
  ::eventfd_read(event_signal_.get(), &ignored);
  NodeEvent event = events_.front();
  events_.pop_front();
  return event;
}

void Rendezvous::end_generation() {
  std::unique_lock lock(mutex_);
  is_running_ = false;
  for (Member& member : members_) {
    member.place = 0;
    if (!member.generation_ended) send(member, {.kind = Kind::end_generation});
  }
  const auto ended = [&] {
    return std::ranges::all_of(
        members_, [](const Member& member) { return member.generation_ended || !member.lost.empty(); });
  };
  // A node that does not answer must not delay the others. Its keepers lose the supervisor and end its ranks.
  if (!changed_.wait_for(lock, clock_duration(acknowledge_seconds), ended))
    log_warning("a node has not confirmed that its processes have ended");
}

void Rendezvous::finish(int exit_code) {
  std::unique_lock lock(mutex_);
  finish_code_ = exit_code;
  for (Member& member : members_) send(member, {.kind = Kind::finish, .code = exit_code});
  // If this process exits before the nodes have read the message, the message may be lost.
  if (!changed_.wait_for(lock, clock_duration(acknowledge_seconds), [&] { return members_.empty(); }))
    log_warning("a node has not disconnected after the end of the run");
}

void Rendezvous::notify(NodeEvent event) {
  events_.push_back(std::move(event));
  ::eventfd_write(event_signal_.get(), 1);
}

Rendezvous::Member* Rendezvous::member_of(int node_rank) {
  for (Member& member : members_)
    if (member.facts.node_rank == node_rank && member.lost.empty()) return &member;
  return nullptr;
}

void Rendezvous::serve() {
  while (true) {
    wait_for_something();
    try {
      attend();
      // New connections are handled last and a few at a time, so that nodes never wait for them.
      while (auto channel = listener_.accept(secret_, 0))
        newcomers_.push_back({.channel = std::move(channel)});
    } catch (const Error& failure) {
      log_error(concat("rendezvous: ", failure.what()));
    }
    changed_.notify_all();
    const std::lock_guard lock(mutex_);
    if (leaving_) return;
  }
}

void Rendezvous::wait_for_something() {
  std::vector<int> watched = {wake_.get(), listener_.descriptor()};
  {
    const std::lock_guard lock(mutex_);
    for (const Newcomer& newcomer : newcomers_) watched.push_back(newcomer.channel->descriptor());
    for (const Member& member : members_) watched.push_back(member.channel->descriptor());
  }
  wait_for_any(watched, 0.5);
}

void Rendezvous::attend() {
  const std::lock_guard lock(mutex_);
  hear_members();
  hear_newcomers();
  send_heartbeats();
  bury_the_lost();
}

void Rendezvous::hear_newcomers() {
  for (auto newcomer = newcomers_.begin(); newcomer != newcomers_.end();) {
    bool settled = seconds_since(newcomer->since) >= settling_seconds;
    try {
      if (const auto bytes = newcomer->channel->receive(0)) {
        const NodeMessage message = NodeMessage::decode(*bytes);
        expect(message.kind == Kind::join, "its first message was not a request to join");
        settled = true;
        welcome(std::move(newcomer->channel), message.facts);
      }
    } catch (const Error& failure) {
      log_warning(concat("a node left before it joined: ", failure.what()));
      settled = true;
    }
    newcomer = settled ? newcomers_.erase(newcomer) : std::next(newcomer);
  }
}

std::string Rendezvous::objection(NodeFacts& facts, const std::string& seen_at, int& code) {
  code = exit_usage;
  if (seen_at != facts.address)
    return concat("its own address is ", facts.address, ", but it connects from ", seen_at,
                  ": nodes must reach each other without address translation");
  if (facts.run != options_.id)
    return concat("this is run \"", options_.id, "\", not \"", facts.run,
                  "\": give every node the same --rdzv-id");
  if (facts.least_nodes != options_.least_nodes || facts.most_nodes != options_.most_nodes)
    return concat("--nnodes is ", options_.least_nodes, ":", options_.most_nodes, " on node 0, ",
                  facts.least_nodes, ":", facts.most_nodes, " on ", facts.name());
  if (facts.node_rank == 0) return concat("node 0 is ", host_name(), ": give this node another --node-rank");
  Member* twin = member_of(facts.node_rank);
  const bool is_here =
      twin != nullptr && twin->facts.host == facts.host && twin->facts.address == facts.address;
  if (twin != nullptr && !is_here)
    return concat("there is already a ", twin->facts.name(), ": give every node its own --node-rank");
  code = 1;
  if (is_here && twin->facts.process != facts.process)
    return concat(twin->facts.name(),
                  " is another lockrun: end that one, or give this one another --node-rank");
  // A node whose connection broke often joins again before its loss is noticed.
  if (twin != nullptr) twin->lost = "it has joined again";
  for (int rank = 1; facts.node_rank < 0 && rank < options_.most_nodes; ++rank)
    if (member_of(rank) == nullptr) facts.node_rank = rank;
  return facts.node_rank < 0 ? concat("all ", options_.most_nodes, " nodes have already joined") : "";
}

void Rendezvous::welcome(std::unique_ptr<Channel> channel, NodeFacts facts) {
  int code = 0;
  const std::string reason = objection(facts, Endpoint::parse(channel->peer()).host, code);
  if (!reason.empty()) {
    if (code == exit_usage) log_warning(concat("refused ", facts.name(), ": ", reason));
    channel->send(NodeMessage{.kind = Kind::refused, .code = code, .text = reason}.encode());
    return;
  }
  if (finish_code_) {
    channel->send(NodeMessage{.kind = Kind::finish, .code = *finish_code_}.encode());
    return;
  }
  bury_the_lost();
  channel->send(NodeMessage{.kind = Kind::welcome, .number = facts.node_rank}.encode());
  log_info(concat(facts.name(), " joined with ", facts.slots, " ranks"));
  if (is_running_) notify({.kind = NodeEvent::Kind::joined, .node = facts.name()});
  last_change_ = Clock::now();
  members_.push_back({.facts = std::move(facts), .channel = std::move(channel)});
}

void Rendezvous::hear_members() {
  for (Member& member : members_) {
    try {
      while (const auto bytes = member.lost.empty() ? member.channel->receive(0) : std::nullopt) {
        member.heard = Clock::now();
        hear(member, NodeMessage::decode(*bytes));
      }
    } catch (const Error& failure) {
      if (member.lost.empty()) member.lost = failure.what();
    }
    if (member.lost.empty() && seconds_since(member.heard) >= node_silence_seconds)
      member.lost = concat("nothing heard from it for ", node_silence_seconds, " s");
  }
}

void Rendezvous::hear(Member& member, const NodeMessage& message) {
  if (message.kind == Kind::stop)
    notify({.kind = NodeEvent::Kind::stop_requested, .node = member.facts.name()});
  if (message.kind == Kind::generation_ended) member.generation_ended = true;
  if (message.kind == Kind::host_ended && is_running_)
    notify({.kind = NodeEvent::Kind::host_ended, .node = member.facts.name(), .reason = message.text});
}

void Rendezvous::send(Member& member, const NodeMessage& message) {
  try {
    if (member.lost.empty()) member.channel->send(message.encode());
  } catch (const Error& failure) {
    member.lost = failure.what();
  }
}

void Rendezvous::send_heartbeats() {
  if (seconds_since(last_beat_) < node_beat_seconds) return;
  last_beat_ = Clock::now();
  for (Member& member : members_) send(member, {.kind = Kind::beat});
}

void Rendezvous::bury_the_lost() {
  for (Member& member : members_) {
    if (member.lost.empty() || finish_code_) continue;
    log_warning(concat(member.facts.name(), " is lost: ", member.lost));
    notify({.kind = NodeEvent::Kind::lost, .node = member.facts.name(), .reason = member.lost});
    last_change_ = Clock::now();
  }
  std::erase_if(members_, [](const Member& member) { return !member.lost.empty(); });
}

}  // namespace lockstep
