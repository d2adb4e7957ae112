// SPDX-License-Identifier: Apache-2.0
#include "lockstep/pmix/host.h"

#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <unistd.h>
#include <utility>
#include <vector>

#include "lockstep/comm/open_mpi.h"
#include "lockstep/core/clock.h"
#include "lockstep/core/descriptor.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/hosting/host_messages.h"
#include "lockstep/net/channel.h"
#include "lockstep/pmix/pmix_server.h"
#include "lockstep/program/signals.h"

namespace lockstep {
namespace {

constexpr double connect_seconds = 30.0;
constexpr double beat_seconds = 5.0;
/// PMIx's status for a request that cannot be answered.
constexpr int not_found = -46;

/// Work that other threads leave for the main thread.
class Inbox {
 public:
  void put(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
    ::eventfd_write(signal_.get(), 1);
  }
  void work() {
    std::deque<std::function<void()>> now;
    {
      const std::lock_guard lock(mutex_);
      eventfd_t ignored = 0;
      ::eventfd_read(signal_.get(), &ignored);
      now.swap(waiting_);
    }
    for (const auto& one : now) one();
  }
  int descriptor() const { return signal_.get(); }

 private:
  Descriptor signal_ = event_descriptor();
  std::mutex mutex_;
  std::deque<std::function<void()>> waiting_;
};

/// Returns the bytes of hexadecimal digits.
std::string bytes_of(const std::string& digits) {
  std::string bytes;
  for (size_t at = 0; at + 1 < digits.size(); at += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(at, 2), nullptr, 16));
  return bytes;
}

/// Removes the variables of a launcher that started lockrun. Ranks would take them for their own.
void forget_other_launchers() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name = std::string(*entry).substr(0, std::string_view(*entry).find('='));
    const bool is_setting = name.starts_with("PMIX_MCA_");
    if (!is_setting &&
        (name.starts_with("PMIX_") || name.starts_with("PMI_") || name.starts_with("OMPI_COMM_WORLD_")))
      names.push_back(name);
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

class Host {
 public:
  Host(std::string endpoint, int node, const Secret& secret)
      : endpoint_(std::move(endpoint)),
        node_(node),
        secret_(secret),
        channel_(connect_channel(endpoint_, secret, connect_seconds)) {}

  void run() {
    channel_.send(concat(host_greeting, node_));
    const std::optional<std::string> first = channel_.receive(connect_seconds);
    expect(first.has_value(), "the supervisor sends no ranks");
    map_ = HostMessage::decode(*first).map;
    if (map_.nodes.empty()) return;  // the attempt is over
    const std::string& host = map_.nodes.at(static_cast<size_t>(map_.here)).host;
    server_.emplace(made("server"), host, requests());
    server_->announce(map_, made("ranks"));
    for (const int rank : map_.local_ranks()) start_keeper(rank);
    while (!is_over_) attend();
  }

 private:
  /// Makes a folder for files and returns its path.
  static std::string made(const std::string& name) {
    std::string folder = environment(folder_variable) + "/" + name;
    std::filesystem::create_directories(folder);
    return folder;
  }

  PmixRequests requests() {
    return {.fence =
                [this](const std::string& participants, const std::string& bytes, const PmixAnswer& answer) {
                  inbox_.put([=, this] { contribute(participants, bytes, answer); });
                },
            .fetch = [this](int rank,
                            const PmixAnswer& answer) { inbox_.put([=, this] { fetch(rank, answer); }); }};
  }

  void start_keeper(int rank) {
    const std::vector<int>& local = map_.local_ranks();
    OpenMpiEnvironment settings;
    settings.respect_ptrace_rules().without_mpirun().with_segments_in(
        lockstep::environment(shared_folder_variable));
    if (map_.nodes.size() == 1) settings.within_one_host();
    if (static_cast<int>(local.size()) > available_cores()) settings.share_cores();
    std::map<std::string, std::string> environment = settings.variables();
    environment.merge(server_->environment(rank));
    environment[secret_variable] = secret_.bytes();
    environment["OMPI_COMM_WORLD_RANK"] = std::to_string(rank);
    environment["OMPI_COMM_WORLD_SIZE"] = std::to_string(map_.size());
    environment["OMPI_COMM_WORLD_LOCAL_RANK"] = std::to_string(rank - local.front());
    environment["OMPI_COMM_WORLD_LOCAL_SIZE"] = std::to_string(local.size());
    const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe");
    keepers_.try_emplace(rank,
                         ProcessOptions{.command = {own.parent_path() / "lockrun", "--keeper", endpoint_},
                                        .environment = environment,
                                        .without_input = true});
  }

  void attend() {
    std::vector<int> watched = {channel_.descriptor(), inbox_.descriptor(), signals_.descriptor()};
    for (auto& [rank, keeper] : keepers_) watched.push_back(keeper.descriptor());
    if (!channel_.has_buffered()) wait_for_any(watched, beat_seconds);
    while (const auto signal = signals_.next()) is_over_ |= *signal == SIGTERM;
    while (const auto message = channel_.receive(0.0)) obey(HostMessage::decode(*message));
    inbox_.work();
    for (auto keeper = keepers_.begin(); keeper != keepers_.end();)
      keeper = keeper->second.ending() ? keepers_.erase(keeper) : std::next(keeper);
    if (seconds_since(last_beat_) < beat_seconds) return;
    last_beat_ = Clock::now();
    send({.kind = HostMessage::Kind::beat});
  }

  void obey(const HostMessage& message) {
    using Kind = HostMessage::Kind;
    if (message.kind == Kind::end) is_over_ = true;
    if (message.kind == Kind::fenced) {
      auto& waiting = fences_[message.participants];
      expect(!waiting.empty(), "the supervisor ends a fence that has not begun");
      waiting.front()(0, bytes_of(message.data));
      waiting.pop_front();
    }
    if (message.kind == Kind::fetch)
      server_->read(message.rank, [this, message](int status, const std::string& bytes) {
        inbox_.put([=, this] {
          HostMessage answer = message;
          answer.kind = Kind::fetched;
          answer.status = status;
          answer.data = hexadecimal(bytes);
          send(answer);
        });
      });
    if (message.kind != Kind::fetched) return;
    if (const auto asked = fetches_.extract(message.number))
      asked.mapped()(message.status, bytes_of(message.data));
  }

  void contribute(const std::string& participants, const std::string& bytes, const PmixAnswer& answer) {
    fences_[participants].push_back(answer);
    send({.kind = HostMessage::Kind::fence, .participants = participants, .data = hexadecimal(bytes)});
  }

  void fetch(int rank, const PmixAnswer& answer) {
    if (map_.nodes.size() == 1) return answer(not_found, "");
    fetches_[++last_fetch_] = answer;
    send({.kind = HostMessage::Kind::fetch, .node = map_.here, .number = last_fetch_, .rank = rank});
  }

  void send(const HostMessage& message) { channel_.send(message.encode()); }

  const std::string endpoint_;
  const int node_;
  const Secret secret_;
  /// Constructed before the library's threads, which must not receive signals. A batch system also signals
  /// this process, and only SIGTERM ends it.
  Signals signals_{{SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}};
  Inbox inbox_;
  Channel channel_;
  RankMap map_;
  std::optional<PmixServer> server_;
  std::map<int, Process> keepers_;
  std::map<std::string, std::deque<PmixAnswer>> fences_;  ///< keyed by participants
  std::map<int64_t, PmixAnswer> fetches_;
  int64_t last_fetch_ = 0;
  Clock::time_point last_beat_ = Clock::now();
  bool is_over_ = false;
};

}  // namespace

int run_host(const std::string& endpoint, int node) {
  const Secret secret = Secret::from_environment(
      secret_variable,
      concat("lockrun_host is started by lockrun, not by hand: ", secret_variable, " is not set"));
  forget_other_launchers();
  std::optional<Host> host;
  try {
    host.emplace(endpoint, node, secret);
    host->run();
  } catch (const ConnectionClosed&) {
    // The supervisor is gone. The host's destructor would kill the keepers, which have to clean up.
    std::_Exit(1);
  }
  return 0;
}

}  // namespace lockstep
