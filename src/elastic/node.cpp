// SPDX-License-Identifier: Apache-2.0
#include "lockstep/elastic/node.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/process.h"
#include "lockstep/elastic/launchers.h"
#include "lockstep/elastic/messages.h"
#include "lockstep/elastic/stop_request.h"
#include "lockstep/net/addresses.h"
#include "lockstep/net/channel.h"

namespace lockstep {
namespace {

using Kind = NodeMessage::Kind;

constexpr double attempt_seconds = 5.0;
constexpr double retry_seconds = 0.5;
constexpr double word_seconds = 10.0;
constexpr double introduction_seconds = 15.0;
constexpr double flush_seconds = 5.0;

class Node {
 public:
  explicit Node(const NodeOptions& options) : options_(options), secret_(run_secret(options)) {
    require_host_program();
  }

  int run() {
    while (!code_) {
      join();
      if (!code_) serve();
    }
    host_.flush(flush_seconds);
    return *code_;
  }

 private:
  void join() {
    const Clock::time_point deadline = after(options_.timeout_seconds);
    Clock::time_point next_word = after(2.0);
    while (!try_to_join()) {
      if (Clock::now() >= deadline)
        throw Error(concat("gave up after ", options_.timeout_seconds, " s: no rendezvous at ",
                           options_.endpoint, ": ", obstacle_,
                           ": is lockrun running on node 0, and does a firewall let this host through?"));
      if (Clock::now() >= next_word) {
        log_info(concat("waiting for the rendezvous at ", options_.endpoint, ": ", obstacle_));
        next_word = after(word_seconds);
      }
      wait_for_something(retry_seconds);
      heed_requests();
      if (code_) return;
    }
  }

  bool try_to_join() {
    try {
      const std::string endpoint = Endpoint::parse(options_.endpoint, default_rendezvous_port).text();
      channel_.emplace(connect_channel(endpoint, secret_, attempt_seconds, options_.local_address));
      const std::string address = channel_->local_host();
      send({.kind = Kind::join,
            .facts = {.node_rank = options_.node_rank,
                      .host = host_name(),
                      .process = process_mark(),
                      .address = address,
                      .slots = options_.slots,
                      .run = options_.id,
                      .least_nodes = options_.least_nodes,
                      .most_nodes = options_.most_nodes}});
      const auto bytes = channel_->receive(introduction_seconds);
      expect(bytes.has_value(), "the rendezvous does not answer");
      const NodeMessage answer = NodeMessage::decode(*bytes);
      require(answer.kind != Kind::refused || answer.code != exit_usage, "refused by ", endpoint, ": ",
              answer.text);
      if (answer.kind == Kind::finish) {
        code_ = answer.code;
        return true;
      }
      expect(answer.kind == Kind::welcome, answer.text);
      log_info(concat("joined run ", options_.id, " at ", endpoint, " as node ", answer.number));
      return true;
    } catch (const UserError&) {
      throw;
    } catch (const Error& failure) {
      channel_.reset();
      obstacle_ = failure.what();
      return false;
    }
  }

  void serve() {
    Clock::time_point heard = Clock::now();
    Clock::time_point next_beat = Clock::now();
    try {
      while (!code_) {
        if (Clock::now() >= next_beat) {
          send({.kind = Kind::beat});
          next_beat = after(node_beat_seconds);
        }
        wait_for_something(node_beat_seconds);
        heed_requests();
        if (const auto ending = host_.take_ending())
          send({.kind = Kind::host_ended, .text = concat("lockrun_host ended: ", describe(*ending))});
        while (const auto bytes = channel_->receive(0)) {
          heard = Clock::now();
          obey(NodeMessage::decode(*bytes));
          if (code_) break;
        }
        expect(seconds_since(heard) < node_silence_seconds, "nothing heard for ", node_silence_seconds, " s");
      }
    } catch (const Error& failure) {
      log_warning(concat("lost the rendezvous (", failure.what(), "): ending its processes on this node"));
      channel_.reset();
    }
    host_.end();
  }

  void wait_for_something(double seconds) {
    std::vector<int> watched = host_.descriptors();
    watched.push_back(request_.descriptor());
    if (channel_) watched.push_back(channel_->descriptor());
    wait_for_any(watched, seconds);
  }

  void obey(const NodeMessage& message) {
    if (message.kind == Kind::start) start_host(message);
    if (message.kind == Kind::finish) code_ = message.code;
    if (message.kind == Kind::end_generation) {
      host_.end();
      send({.kind = Kind::generation_ended});
    }
  }

  void start_host(const NodeMessage& message) {
    try {
      std::map<std::string, std::string> environment = network_environment(channel_->local_host());
      environment[secret_variable] = secret_.bytes();
      host_.start(host_command(message.text, message.number), environment);
    } catch (const Error& problem) {
      send({.kind = Kind::host_ended, .text = problem.what()});
    }
  }

  void heed_requests() {
    request_.hear();
    if (request_.is_cancelled()) {
      code_ = exit_interrupted;
    } else if (request_.is_asked() && !channel_) {
      code_ = exit_stopped;
    } else if (request_.is_asked() && !is_told_) {
      log_info("lockrun: asking the run to save and stop; Ctrl-C again ends this node at once");
      send({.kind = Kind::stop});
      is_told_ = true;
    }
  }

  void send(const NodeMessage& message) { channel_->send(message.encode()); }

  NodeOptions options_;
  Secret secret_;
  StopRequest request_;
  NodeHost host_;
  std::optional<Channel> channel_;
  std::optional<int> code_;  ///< the exit code, once it is known
  std::string obstacle_;     ///< why the node has not joined yet
  bool is_told_ = false;     ///< the request was sent to the rendezvous
};

/// Returns the processes whose parent is this one, including adopted ones.
std::vector<pid_t> own_children() {
  std::vector<pid_t> children;
  std::error_code failure;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", failure)) {
    std::ifstream list(thread.path() / "children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

}  // namespace

NodeHost::NodeHost() {
  const bool adopts = ::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
  expect(adopts, "cannot adopt orphans: ", std::strerror(errno));
}

NodeHost::~NodeHost() { end(); }

void NodeHost::start(const std::vector<std::string>& command,
                     std::map<std::string, std::string> environment) {
  end();
  folders_.emplace();
  environment.merge(folder_environment(*folders_));
  process_.emplace(ProcessOptions{.command = command,
                                  .environment = environment,
                                  .output = output_.output.input(),
                                  .errors = output_.errors.input(),
                                  .without_input = true});
}

std::vector<int> NodeHost::descriptors() const {
  return process_ ? std::vector<int>{process_->descriptor()} : std::vector<int>();
}

std::optional<Ending> NodeHost::take_ending() {
  const std::optional<Ending> ending = process_ ? process_->ending() : std::nullopt;
  if (ending) process_.reset();
  return ending;
}

void NodeHost::end() {
  constexpr double grace_seconds = 2.0, give_up_seconds = 10.0;
  if (process_) process_->signal(SIGTERM);
  const auto grace = after(grace_seconds);
  const auto give_up = after(give_up_seconds);
  // Orphans become children of this process. So ending children until none is left ends all processes.
  for (auto children = own_children(); !children.empty(); children = own_children()) {
    if (process_) process_->ending();
    for (const pid_t child : children) {
      if (Clock::now() >= grace) ::kill(child, SIGKILL);
      if (!process_ || process_->id() != child) ::waitpid(child, nullptr, WNOHANG);
    }
    if (Clock::now() >= give_up) {
      log_error(concat(children.size(), " processes could not be ended"));
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  process_.reset();
  folders_.reset();
}

int run_node(const NodeOptions& options) { return Node(options).run(); }

}  // namespace lockstep
