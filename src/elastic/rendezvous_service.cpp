// SPDX-License-Identifier: Apache-2.0
#include "core/clock.h"
#include "core/error.h"
#include "core/host.h"
#include "core/log.h"
#include "elastic/rendezvous.h"
#include "net/addresses.h"

namespace lockstep {
namespace {

using Kind = NodeMessage::Kind;

constexpr double settling_seconds = 10.0;

}  // namespace

void Rendezvous::serve() {
  while (true) {
    wait_for_something();
    try {
      attend();
      // New connections are handled last and a few at a time, so that nodes never wait for them.
      open_doors();
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

void Rendezvous::open_doors() {
  while (auto channel = listener_.accept(secret_, 0)) newcomers_.push_back({.channel = std::move(channel)});
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
