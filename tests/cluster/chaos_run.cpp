// SPDX-License-Identifier: Apache-2.0
#include "tests/cluster/chaos_run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <poll.h>
#include <random>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "support/eventually.h"
#include "support/temporary_directory.h"
#include "tests/cluster/rank_processes.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Moment::any is as likely as all other moments together.
constexpr std::array moments = {Moment::any,      Moment::any,        Moment::any,    Moment::any,
                                Moment::snapshot, Moment::validation, Moment::sample, Moment::start};
constexpr std::array signals = {SIGKILL, SIGSTOP, SIGTERM, SIGSEGV};
constexpr double leave_seconds = 15.0;  ///< limit for the last process to end after lockrun

/// A launched job, from its start to its end. The destructor ends a job that still runs.
class Job {
 public:
  Job(const ChaosSetup& setup, int ranks) : setup_(setup) {
    std::vector<std::string> words = {setup.lockrun, "--nproc", std::to_string(ranks), "--max-restarts",
                                      "30",          "--",      setup.program};
    words.insert(words.end(), setup.arguments.begin(), setup.arguments.end());
    words.push_back("log.dir=" + setup.folder + "/run");
    words.push_back("snapshot.path=" + setup.folder + "/snapshots");
    process_ = ::fork();
    expect(process_ >= 0, "no process for ", setup.lockrun);
    if (process_ == 0) become(words, setup.folder);
  }
  ~Job() {
    if (is_over()) return;
    ::kill(process_, SIGKILL);
    while (!is_over()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  bool is_over() {
    if (exit_code_ >= 0) return true;
    int status = 0;
    if (::waitpid(process_, &status, WNOHANG) != process_) return false;
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
  }
  /// Polls until the condition holds. Returns false if the job ends or is late before.
  bool wait_until(const std::function<bool()>& condition) {
    while (!condition()) {
      if (is_over() || is_late()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }
  void signal(int number) const { ::kill(process_, number); }
  bool is_late() const { return seconds() > setup_.limit_seconds; }
  double seconds() const { return seconds_since(begin_); }
  int exit_code() const { return exit_code_; }

 private:
  [[noreturn]] static void become(const std::vector<std::string>& words, const std::string& folder) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // find_processes() recognizes the run's processes by this variable.
    ::setenv("LOCKSTEP_CHAOS_FOLDER", folder.c_str(), 1);
    const int file = ::open((folder + "/said").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }

  const ChaosSetup& setup_;
  Clock::time_point begin_ = Clock::now();
  pid_t process_ = -1;
  int exit_code_ = -1;
};

/// Returns the last step in metrics.jsonl, or 0 if there is none yet.
int64_t last_step(const std::string& folder) {
  std::ifstream file(folder + "/run/metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!file) return 0;
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - 2048));
  const std::string end{std::istreambuf_iterator<char>(file), {}};
  const std::string mark = "\"step\":";
  const size_t at = end.rfind(mark);
  return at == std::string::npos ? 0 : std::atoll(end.c_str() + at + mark.size());
}

fs::file_time_type time_of_metrics(const std::string& folder) {
  std::error_code missing;
  return fs::last_write_time(folder + "/run/metrics.jsonl", missing);
}

/// A watch that notices when the writing of a snapshot begins.
class SnapshotWatch {
 public:
  explicit SnapshotWatch(const std::string& folder) : queue_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    fs::create_directories(folder);
    ::inotify_add_watch(queue_, folder.c_str(), IN_CREATE);
  }
  ~SnapshotWatch() { ::close(queue_); }
  SnapshotWatch(const SnapshotWatch&) = delete;
  SnapshotWatch& operator=(const SnapshotWatch&) = delete;

  /// Discards the events so far.
  void forget() const {
    std::array<char, 4096> events{};
    while (::read(queue_, events.data(), events.size()) > 0) continue;
  }
  /// Returns whether a folder <name>.tmp is created within 20 milliseconds.
  bool sees_beginning() const {
    pollfd waiting{.fd = queue_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, 20) <= 0) return false;
    alignas(inotify_event) std::array<char, 4096> events{};
    const ssize_t bytes = ::read(queue_, events.data(), events.size());
    return bytes > 0 &&
           std::string(events.data(), static_cast<size_t>(bytes)).find(".tmp") != std::string::npos;
  }

 private:
  int queue_;
};

bool has_unfinished_snapshot(const std::string& folder) {
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder + "/snapshots", missing))
    if (entry.path().extension() == ".tmp") return true;
  return false;
}

/// Returns the phase that a rank reports in its heartbeat page. It is empty before the first report.
std::string phase_of(pid_t rank) {
  const std::string environment = read_text(concat("/proc/", rank, "/environ"));
  const std::string name = std::string(1, '\0') + "LOCKSTEP_HEARTBEAT=";
  const size_t at = environment.find(name);
  if (at == std::string::npos) return "";
  const std::string path = environment.c_str() + at + name.size();
  try {
    return map_heartbeat(path, false)->phase;
  } catch (const Error&) {
    return "";  // the rank has just ended
  }
}

bool is_at(Moment moment, const std::string& folder, pid_t rank) {
  if (moment == Moment::any) return true;
  if (moment == Moment::snapshot) return has_unfinished_snapshot(folder);
  const std::string phase = phase_of(rank);
  if (moment == Moment::validation) return phase == "evaluation";
  if (moment == Moment::sample) return phase == "writing" || phase == "waiting";
  return phase.empty();
}

bool share_any(const std::vector<pid_t>& a, const std::vector<pid_t>& b) {
  return std::find_first_of(a.begin(), a.end(), b.begin(), b.end()) != a.end();
}

/// Polls without a pause, because a moment may be short. Returns false if the job or the rank ends before.
bool wait_for_moment(const ChaosSetup& setup, Moment moment, pid_t rank, Job& job) {
  while (!is_at(moment, setup.folder, rank))
    if (job.is_over() || job.is_late() || ::kill(rank, 0) != 0) return false;
  return true;
}

pid_t victim_of(const Strike& blow, const std::vector<pid_t>& ranks) {
  return ranks[blow.victim % ranks.size()];
}

/// Waits for the moment of a strike. Returns the ranks of that moment, or none if the job ended before.
std::vector<pid_t> aim(const ChaosSetup& setup, const Strike& blow, int ranks, Job& job) {
  std::vector<pid_t> found;
  const SnapshotWatch watch(setup.folder + "/snapshots");
  const bool is_ready = job.wait_until([&] {
    if (last_step(setup.folder) < blow.at_step) return false;
    found = find_ranks(setup.program, setup.folder);
    return static_cast<int>(found.size()) == ranks;
  });
  watch.forget();
  if (!is_ready) return {};
  const bool is_now = blow.moment == Moment::snapshot
                          ? job.wait_until([&] { return watch.sees_beginning(); })
                          : wait_for_moment(setup, blow.moment, victim_of(blow, found), job);
  return is_now ? found : std::vector<pid_t>{};
}

/// Waits until other processes have replaced all ranks and have completed a step.
void observe(const ChaosSetup& setup, const std::vector<pid_t>& before, int ranks, Job& job,
             Clock::time_point begin, StrikeResult& result) {
  result.happened = job.wait_until([&] {
    const std::vector<pid_t> after = find_ranks(setup.program, setup.folder);
    return after.size() == static_cast<size_t>(ranks) && !share_any(before, after);
  });
  result.restart_seconds = seconds_since(begin);
  const fs::file_time_type written = time_of_metrics(setup.folder);
  job.wait_until([&] { return time_of_metrics(setup.folder) != written; });
  result.resume_seconds = seconds_since(begin);
}

/// Sends the signal to a rank. lockrun must do the rest.
StrikeResult strike_rank(const ChaosSetup& setup, const Strike& blow, int ranks, Job& job) {
  StrikeResult result;
  const std::vector<pid_t> before = aim(setup, blow, ranks, job);
  if (before.empty()) return result;
  const auto begin = Clock::now();
  const pid_t victim = victim_of(blow, before);
  if (::kill(victim, blow.signal) != 0) return result;
  result.hit_moment = is_at(blow.moment, setup.folder, victim);
  result.step = last_step(setup.folder);
  observe(setup, before, ranks, job, begin, result);
  return result;
}

/// Ends the processes of a run that are left some time after its end. Returns their number.
int end_leftovers(const ChaosSetup& setup) {
  std::vector<pid_t> left;
  eventually([&] { return (left = find_processes(setup.folder)).empty(); }, leave_seconds);
  for (const pid_t process : left) ::kill(process, SIGKILL);
  return static_cast<int>(left.size());
}

/// Sends the signal to lockrun itself and counts the processes that are left. Then starts another job with
/// `ranks_after` ranks.
StrikeResult resize(const ChaosSetup& setup, const Strike& blow, int ranks, std::unique_ptr<Job>& job,
                    std::string& problem) {
  StrikeResult result;
  const std::vector<pid_t> before = aim(setup, blow, ranks, *job);
  if (before.empty()) return result;
  const auto begin = Clock::now();
  job->signal(blow.signal);
  result.hit_moment = is_at(blow.moment, setup.folder, victim_of(blow, before));
  job->wait_until([] { return false; });
  result.step = last_step(setup.folder);
  if (job->is_over() && job->exit_code() == 0) return result;  // the job had already completed
  const int expected = blow.signal == SIGTERM ? exit_stopped : 128 + blow.signal;
  if (!job->is_over() || job->exit_code() != expected)
    problem = concat(describe({.exit_code = 0, .signal = blow.signal}), " to lockrun: exit code ",
                     job->exit_code());
  if (const int left = end_leftovers(setup); left > 0)
    problem += concat(" ", left, " processes left after ", describe({.exit_code = 0, .signal = blow.signal}),
                      " to lockrun");
  job = std::make_unique<Job>(setup, blow.ranks_after);
  observe(setup, before, blow.ranks_after, *job, begin, result);
  return result;
}

}  // namespace

const char* name(Moment moment) {
  constexpr std::array names = {"", "snapshot", "validation", "sample", "start"};
  return names.at(static_cast<size_t>(moment));
}

bool ChaosResult::was_struck() const {
  return std::all_of(strikes.begin(), strikes.end(),
                     [](const StrikeResult& result) { return result.happened; });
}

ChaosPlan make_plan(uint64_t seed, bool is_resize, int64_t steps) {
  // Uses the random engine's own numbers alone. The results of distributions differ between standard
  // libraries.
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t limit) { return random() % limit; };
  ChaosPlan plan{.seed = seed, .ranks = 2 + static_cast<int>(below(3)), .strikes = {}};
  const uint64_t strikes = is_resize ? 1 : 1 + below(3);
  for (uint64_t i = 0; i < strikes; ++i) {
    Strike& blow = plan.strikes.emplace_back();
    blow.signal = signals[below(signals.size())];
    blow.at_step = 1 + static_cast<int64_t>(below(static_cast<uint64_t>(steps) * 7 / 10));
    blow.moment = moments[below(moments.size())];
    blow.victim = static_cast<uint32_t>(below(12));
    if (blow.moment != Moment::start) continue;
    blow.at_step = 0;
    // If a rank is stopped before it reports its deadline, lockrun notices it only after half a minute.
    if (blow.signal == SIGSTOP) blow.signal = SIGKILL;
  }
  if (is_resize) {
    plan.strikes[0].signal = below(2) == 0 ? SIGKILL : SIGTERM;
    plan.strikes[0].ranks_after = 1 + (plan.ranks + static_cast<int>(below(3))) % 4;
  }
  std::sort(plan.strikes.begin(), plan.strikes.end(),
            [](const Strike& a, const Strike& b) { return a.at_step < b.at_step; });
  return plan;
}

ChaosResult run_with_chaos(const ChaosSetup& setup, const ChaosPlan& plan) {
  fs::create_directories(setup.folder);
  const auto begin = Clock::now();
  ChaosResult result;
  auto job = std::make_unique<Job>(setup, plan.ranks);
  int ranks = plan.ranks;
  for (const Strike& blow : plan.strikes) {
    result.strikes.push_back(blow.ranks_after > 0 ? resize(setup, blow, ranks, job, result.problem)
                                                  : strike_rank(setup, blow, ranks, *job));
    if (blow.ranks_after > 0) ranks = blow.ranks_after;
  }
  job->wait_until([] { return false; });
  result.seconds = seconds_since(begin);
  if (job->is_over())
    result.exit_code = job->exit_code();
  else
    result.problem += concat(" hangs: not over after ", setup.limit_seconds, " s");
  job.reset();
  if (result.problem.empty() && result.exit_code != 0)
    result.problem = concat("exit code ", result.exit_code);
  if (const int left = end_leftovers(setup); left > 0) result.problem += concat(" ", left, " processes left");
  return result;
}

}  // namespace lockstep
