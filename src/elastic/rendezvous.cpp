// SPDX-License-Identifier: Apache-2.0
#include "elastic/rendezvous.h"

#include <algorithm>

#include "core/host.h"
#include "core/log.h"
#include "elastic/launchers.h"
#include "net/addresses.h"
#include "program/event.h"

namespace lockstep {
namespace {

using Kind = NodeMessage::Kind;

constexpr double acknowledge_seconds = 8.0;
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
    const int here = 1 + int(members_.size());
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
    member.place = static_cast<int>(placement.hosts.size());
    placement.hosts.push_back({member.facts.host, member.facts.slots});
  }
  return placement;
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

}  // namespace lockstep
