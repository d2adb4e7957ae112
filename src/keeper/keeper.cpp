// SPDX-License-Identifier: Apache-2.0
#include "lockstep/keeper/keeper.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/core/clock.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/elastic/launch_options.h"
#include "lockstep/elastic/messages.h"
#include "lockstep/keeper/diagnosis.h"
#include "lockstep/keeper/rank_stream.h"
#include "lockstep/net/channel.h"
#include "lockstep/program/private_folder.h"
#include "lockstep/program/signals.h"

namespace lockstep {
namespace {

constexpr double connect_seconds = 30.0;
constexpr int tick_milliseconds = 100;
constexpr double report_seconds = 0.5;
/// Seconds that a rank may be silent beyond its own deadline, so that it can report its failure itself.
constexpr double patience_seconds = 2.0;
/// Seconds for which a rank without a deadline may be stopped, by SIGSTOP or from a terminal.
constexpr double stop_seconds = 30.0;
/// Seconds that debuggers have to print the stacks of a rank.
constexpr double stacks_seconds = 10.0;
/// Last lines of stderr that a report repeats.
constexpr size_t told_lines = 20;

/// A rank's files in the folder that the ranks of a host share during an attempt. The destructor removes the
/// files. The last rank's destructor removes the folder.
class RankFolder {
 public:
  /// Throws Error if the folder belongs to another user or cannot be created.
  RankFolder(const std::string& folder, int rank)
      : path(folder), heartbeat_path(concat(folder, "/heartbeat.rank", rank)), rank_(rank) {
    const int problem = ::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
    expect(problem == 0, "cannot create ", folder, ": ", std::strerror(problem));
    struct stat status {};
    expect(::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid(),
           folder, " belongs to another user");
    page = map_heartbeat(heartbeat_path, true);
  }
  ~RankFolder() {
    ::unlink(heartbeat_path.c_str());
    ::unlink(flight_path(path, rank_).c_str());
    ::rmdir(path.c_str());
  }
  RankFolder(const RankFolder&) = delete;
  RankFolder& operator=(const RankFolder&) = delete;

  const std::string path;
  const std::string heartbeat_path;
  std::shared_ptr<HeartbeatPage> page;

 private:
  int rank_;
};

/// Returns the first of these variables that the launcher has set, or `fallback`.
std::string place(std::initializer_list<const char*> names, const char* fallback) {
  for (const char* name : names)
    if (const auto text = environment_if_set(name)) return *text;
  return fallback;
}

int own_rank() {
  return std::stoi(place({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}, "0"));
}

/// Takes a variable out of the environment. A lockrun that the rank starts must not get it.
std::string taken_variable(const char* name) {
  std::string value = environment(name);
  ::unsetenv(name);
  return value;
}

/// Removes a folder that other keepers remove, too. That fails if two remove a file, so it is repeated.
void remove_with_others(const std::string& folder) {
  std::error_code ignored;
  for (int tried = 0; tried < 100 && !folder.empty() && std::filesystem::exists(folder, ignored); ++tried)
    std::filesystem::remove_all(folder, ignored);
}

/// Returns a rank's environment: the plan's, torchrun's names for its place, and its files.
std::map<std::string, std::string> environment_of(const RankPlan& plan, const RankFolder& folder) {
  std::map<std::string, std::string> all = plan.environment;
  all["RANK"] = std::to_string(own_rank());
  all["LOCAL_RANK"] = place({"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}, "0");
  if (const auto size = environment_if_set("OMPI_COMM_WORLD_LOCAL_SIZE")) all["LOCAL_WORLD_SIZE"] = *size;
  if (const auto node = environment_if_set("SLURM_NODEID")) all["GROUP_RANK"] = *node;
  all["LOCKSTEP_HEARTBEAT"] = folder.heartbeat_path;
  all["LOCKSTEP_RECORDS"] = folder.path;
  // Open MPI catches crashes to print a trace, and may then wait forever for a lock of the crashed rank.
  if (!environment_if_set("OMPI_MCA_opal_signal")) all["OMPI_MCA_opal_signal"] = "";
  return all;
}

/// One rank and its connection to the supervisor.
class Keeper {
 public:
  Keeper(Channel channel, int rank, pid_t launcher) : channel_(std::move(channel)), launcher_(launcher) {
    report_.rank = rank;
    report_.host = host_name();
    report_.machine = boot_id();
  }

  void run() {
    try {
      keep();
    } catch (const Error&) {
      // The supervisor or the launcher is gone and cannot clean up. A killed supervisor may still be ending
      // and hold its locks, so the attempt's folders are removed without them.
      child_.reset();
      if (folder_) remove_with_others(folder_->path);
      remove_with_others(shared_folder_);
      AttemptFolders::remove_abandoned();
      throw;
    }
  }

 private:
  void keep() {
    channel_.send(to_json(report_));
    const std::optional<std::string> plan = channel_.receive(connect_seconds);
    expect(plan.has_value(), "the supervisor sends no plan");
    if (*plan == end_message || *plan == stop_message) return;
    start(plan_from_json(*plan));
    while (!report_.has_ended) attend();
    // The supervisor ends a failed attempt. Until then the launcher must see all keepers alive.
    while ((!report_.ending.is_success() && !is_over_) ||
           std::ranges::any_of(streams_, &RankStream::has_pending)) {
      wait();
      obey();
      pass_streams_on();
      report_news();
    }
  }

  void start(const RankPlan& plan) {
    folder_.emplace(own_folder_.empty() ? plan.folder : own_folder_, report_.rank);
    try {
      std::map<std::string, std::string> environment = environment_of(plan, *folder_);
      open_streams(plan.logs, environment);
      child_.emplace(ProcessOptions{.command = plan.command,
                                    .environment = environment,
                                    .output = streams_.at(0).input(),
                                    .errors = streams_.at(1).input()});
      for (RankStream& stream : streams_) stream.close_input();
    } catch (const UserError& problem) {
      report_.failure = problem.what();
      report_.ending.exit_code = exit_usage;
      return finish();
    }
    memory_kills_.emplace(ControlGroups(concat("/proc/", child_->id())));
    report_.process = child_->id();
    channel_.send(to_json(report_));
  }

  void open_streams(const RankLogs& logs, std::map<std::string, std::string>& environment) {
    const int local_rank = number_in<int>(environment["LOCAL_RANK"]).value_or(0);
    const std::string folder =
        concat(logs.folder, "/attempt_", environment["TORCHELASTIC_RESTART_COUNT"], "/", report_.rank);
    const auto route = [&](int stream, int console, const char* file) {
      const StreamTargets targets = logs.targets(stream, local_rank);
      // No line can be redrawn in a file, behind a tag, or where the other stream is elsewhere.
      if (targets.file || !targets.console) environment["TERM"] = "dumb";
      return RankStream::Route{.console = targets.console ? console : -1,
                               .tag = targets.is_tagged ? concat("[rank ", report_.rank, "]: ") : "",
                               .file = targets.file ? folder + file : "",
                               .is_terminal = stream == stdout_stream && targets.console};
    };
    streams_.emplace_back(route(stdout_stream, STDOUT_FILENO, "/stdout.log"));
    streams_.emplace_back(route(stderr_stream, STDERR_FILENO, "/stderr.log"));
  }

  void attend() {
    wait();
    obey();
    if (report_.has_ended) return;
    pass_streams_on();
    if (must_stop_) must_stop_ = !signal_catchers(child_->id(), SIGUSR1);
    if (!is_getting_on()) {
      write_stacks();
      return end_rank();
    }
    report_news();
    if (const auto ending = child_->ending()) {
      report_.ending = *ending;
      finish();
    }
  }

  void wait() {
    std::vector<pollfd> watched = {{channel_.descriptor(), POLLIN, 0}, {signals_.descriptor(), POLLIN, 0}};
    if (!report_.has_ended) watched.push_back({child_->descriptor(), POLLIN, 0});
    for (const RankStream& stream : streams_) stream.watch(watched);
    if (!channel_.has_buffered()) ::poll(watched.data(), watched.size(), tick_milliseconds);
    while (const auto signal = signals_.next())
      if (*signal == SIGUSR1) channel_.send(asked_message);
    if (::getppid() != launcher_) throw ConnectionClosed("the launcher is gone");
  }

  void obey() {
    while (const auto message = channel_.receive(0.0)) {
      if (*message == hold_message) hold_streams(true);
      if (*message == release_message) hold_streams(false);
      if (*message == stop_message) stop_rank();
      if (*message != end_message) continue;
      is_over_ = true;
      hold_streams(false);
      if (report_.has_ended) continue;
      if (is_silent()) write_stacks();
      end_rank();
    }
  }

  void stop_rank() {
    must_stop_ = true;
    for (RankStream& stream : streams_) stream.let_rank_stop();
  }

  void hold_streams(bool are_held) {
    for (RankStream& stream : streams_) stream.hold(are_held);
  }

  void pass_streams_on() {
    for (RankStream& stream : streams_) stream.pass_on();
  }

  /// Appends the stacks of the rank's threads to its log, else to its stderr. The first report keeps the
  /// supervisor from ending this keeper meanwhile.
  void write_stacks() {
    const std::string path = folder_->page->log_file;
    const OpenedFile log = open_own_file(path, O_WRONLY | O_APPEND);
    report_.stacks = log.file ? path : "its stderr";
    report_.was_stopped = process_state(child_->id()) == 'T';
    channel_.send(to_json(report_));
    for (RankStream& stream : streams_) stream.take_rest();
    const std::string text = concat("lockrun: stacks of rank ", report_.rank, ", which made no progress for ",
                                    static_cast<int>(seconds_since(last_sign_)), " s\n",
                                    stacks_of_group(child_->id(), stacks_seconds));
    if (!log.file || ::write(log.file.get(), text.data(), text.size()) < 0) streams_.at(1).add(text);
  }

  /// Kills the rank and reports its end.
  void end_rank() {
    report_.was_stopped |= process_state(child_->id()) == 'T';
    report_.was_ended = !child_->ending();
    child_->signal_group(SIGKILL);
    report_.ending = child_->wait(5.0).value_or(Ending{.signal = SIGKILL});
    finish();
  }

  void finish() {
    for (RankStream& stream : streams_) {
      stream.take_rest();
      if (report_.lost_output.empty()) report_.lost_output = stream.problem();
    }
    read_page();
    if (report_.failure.empty()) report_.failure = folder_->page->failure;
    // A shell around the killed process leaves with the same code.
    const bool was_killed = child_ && !report_.was_ended && report_.ending.code() == 128 + SIGKILL;
    if (was_killed) report_.lack_of_memory = memory_kills_->reason();
    if (child_) report_.last_lines = last_shown_lines(streams_.at(1).last_bytes(), told_lines);
    if (const auto last = last_collective(folder_->path, report_.rank))
      report_.last_collective = last->record;
    report_.has_ended = true;
    channel_.send(to_json(report_));
  }

  void read_page() {
    const HeartbeatPage& page = *folder_->page;
    report_.step = page.step;
    report_.replicas = page.replicas;
    report_.snapshot_step = page.snapshot_step;
    report_.snapshot_seconds = page.snapshot_seconds;
    report_.phase = page.phase;
    report_.log_file = page.log_file;
    report_.computed_wrong = page.computed_wrong;
  }

  /// Returns whether the rank may be the one that others have waited for, when their deadlines have passed.
  bool is_silent() const {
    const double deadline = folder_->page->deadline_seconds;
    return deadline > 0 && seconds_since(last_sign_) > deadline / 2;
  }

  bool is_getting_on() {
    const HeartbeatPage& page = *folder_->page;
    const double deadline = page.deadline_seconds;
    // A rank has no deadline while it starts and ends. It counts as stuck then only if it is stopped. A rank
    // that waits for a slow reader of its output is never stuck.
    const bool is_blocked = std::ranges::any_of(streams_, &RankStream::is_blocked);
    const bool is_free = is_blocked || (deadline == 0 && process_state(child_->id()) != 'T');
    if (is_free || page.beats != beats_ || deadline != deadline_) {
      beats_ = page.beats;
      deadline_ = deadline;
      last_sign_ = Clock::now();
    }
    const double silence = seconds_since(last_sign_);
    const double limit = (deadline > 0 ? deadline : stop_seconds) + patience_seconds;
    if (silence > limit) report_.stuck_seconds = silence;
    return silence <= limit;
  }

  void report_news() {
    const bool has_begun = report_.phase.empty() && folder_->page->beats != 0;
    if (!has_begun && seconds_since(last_look_) < report_seconds) return;
    last_look_ = Clock::now();
    const RankReport before = report_;
    read_page();
    const bool has_news = report_.step != before.step || report_.snapshot_step != before.snapshot_step ||
                          report_.snapshot_seconds != before.snapshot_seconds ||
                          report_.phase != before.phase;
    if (!has_news && seconds_since(last_report_) < keeper_beat_seconds) return;
    last_report_ = Clock::now();
    channel_.send(to_json(report_));
  }

  Channel channel_;
  pid_t launcher_;
  /// A launcher that ends its job also signals the keepers. They must survive to report.
  Signals signals_{{SIGUSR1, SIGUSR2, SIGTERM, SIGHUP, SIGINT}};
  RankReport report_;
  const std::string own_folder_ = taken_variable(folder_variable);
  const std::string shared_folder_ = taken_variable(shared_folder_variable);
  std::optional<RankFolder> folder_;
  std::optional<Process> child_;
  std::optional<MemoryKills> memory_kills_;
  std::vector<RankStream> streams_;  ///< stdout and stderr, once the plan is known
  bool must_stop_ = false;           ///< the rank is to stop and has not been signalled yet
  bool is_over_ = false;
  uint64_t beats_ = 0;
  double deadline_ = 0.0;
  Clock::time_point last_sign_ = Clock::now();
  Clock::time_point last_look_ = Clock::now();
  Clock::time_point last_report_ = Clock::now();
};

}  // namespace

int run_keeper(const std::string& endpoint) {
  // Without its launcher the keeper lives on for a moment, to end its rank and to remove files.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const pid_t launcher = ::getppid();
  const Secret secret = Secret::from_environment(
      secret_variable,
      concat("a keeper is started by lockrun, not by hand: ", secret_variable, " is not set"));
  try {
    Keeper(connect_channel(endpoint, secret, connect_seconds), own_rank(), launcher).run();
  } catch (const ConnectionClosed&) {
    // The supervisor is gone. Keeper::run() has already ended the rank.
  }
  return 0;
}

}  // namespace lockstep
