// SPDX-License-Identifier: Apache-2.0
#include "lockstep/elastic/attempt.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <iterator>
#include <unistd.h>
#include <utility>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/process.h"

namespace lockstep {
namespace {

/// Seconds for which more failures are gathered after the first one, to separate the cause from consequences.
constexpr double settle_seconds = 0.3;
/// Seconds that keepers and launcher have to end before they are killed.
constexpr double leave_seconds = 3.0;
/// Seconds from the loss of a connection to the end of the process at its other side.
constexpr double ending_seconds = 0.1;
/// Seconds for which SIGSTOP may have stopped the launcher.
constexpr double most_stopped_seconds = 10.0;
/// Seconds for which all ranks may wait in MPI_Finalize, where the launcher answers them.
constexpr double most_leaving_seconds = 60.0;
/// Factor on the grace period while a rank reports that it is writing a snapshot.
constexpr double writing_factor = 10.0;

/// Returns this process's LOCKSTEP_*, NCCL_* and OMP_* variables, which mpirun does not pass to other hosts.
std::map<std::string, std::string> own_settings() {
  std::map<std::string, std::string> settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    for (const char* prefix : {"LOCKSTEP_", "NCCL_", "OMP_"})
      if (text.starts_with(prefix)) settings[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return settings;
}

}  // namespace

Attempt::Attempt(const LaunchOptions& options, const JobLayout& placement, Launcher launcher, Nodes& nodes,
                 StopRequest& request, Starts earlier)
    : options_(options),
      placement_(placement),
      nodes_(nodes),
      request_(request),
      earlier_(earlier),
      kind_(launcher),
      listener_(placement.address, 0) {
  if (kind_ == Launcher::pmix) hosts_.emplace(placement_.nodes());
}

void Attempt::start(const RankOutput& output) {
  const std::string endpoint = listener_.endpoint();
  ProcessOptions options{.command = hosts_
                                        ? host_command(endpoint, 0)
                                        : launch_command(kind_, placement_, options_.nodes.program, endpoint),
                         .environment = launch_environment(kind_, placement_, folders_),
                         .output = kind_ == Launcher::none ? -1 : output.output.input(),
                         .errors = kind_ == Launcher::none ? -1 : output.errors.input(),
                         .without_input = true};
  options.environment[secret_variable] = nodes_.secret().bytes();
  launcher_.emplace(options);
  if (hosts_) nodes_.start_hosts(endpoint, static_cast<int>(placement_.hosts.size()));
}

Attempt::Outcome Attempt::run(const RankOutput& output) {
  start(output);
  while (!is_over()) {
    wait(0.1);
    attend();
    look_at_launcher();
    look_for_a_stop();
    look_at_deadlines();
    pass_request_on();
    // A rank that is to stop must not wait for a reader.
    hold_output(output.is_behind() && !request_.is_asked());
  }
  const bool left_early = request_.is_asked() && !all_started() && !failed_;
  const bool finished = all_have_left() && !failed_;
  end(output);
  if (request_.is_cancelled() || left_early) return Outcome::left_early;
  if (!finished) return Outcome::failed;
  const bool stopped = std::ranges::any_of(
      reports_, [](const auto& entry) { return entry.second.ending.code() == exit_stopped; });
  if (!stopped) return Outcome::done;
  return request_.is_asked() ? Outcome::stopped : Outcome::failed;
}

void Attempt::wait(double seconds) {
  std::vector<int> watched = {request_.descriptor(), nodes_.events(), listener_.descriptor()};
  if (!launcher_ending_) watched.push_back(launcher_->descriptor());
  bool is_buffered = false;
  for (const Keeper& keeper : keepers_) {
    watched.push_back(keeper.channel->descriptor());
    is_buffered |= keeper.channel->has_buffered();
  }
  if (hosts_) std::ranges::copy(hosts_->descriptors(), std::back_inserter(watched));
  if (!is_buffered) wait_for_any(watched, seconds);
}

void Attempt::attend() {
  request_.hear();
  hear_nodes();
  for (Keeper& keeper : keepers_) hear(keeper);
  keepers_.remove_if([](const Keeper& keeper) { return keeper.channel == nullptr; });
  const std::string problem = hosts_ ? hosts_->attend() : "";
  // look_at_launcher() reports how the host on this node ended.
  if (!problem.empty() && !launcher_->wait(ending_seconds)) fail(problem);
  while (auto channel = listener_.accept(nodes_.secret(), 0.0))
    keepers_.push_back({.channel = std::move(channel)});
}

void Attempt::hear_nodes() {
  while (const auto event = nodes_.next_event()) {
    if (event->kind == NodeEvent::Kind::stop_requested) request_.ask(event->node);
    if (event->kind == NodeEvent::Kind::joined)
      log_info(concat("lockrun: ", event->node, " waits; it takes part in the next start"));
    if (event->kind == NodeEvent::Kind::lost) {
      // The loss of its keepers may have been noticed first, but the lost node is the cause.
      other_cause_.clear();
      fail(concat(event->node, " was lost: ", event->reason));
    }
    if (event->kind == NodeEvent::Kind::host_ended) fail(concat(event->node, ": ", event->reason));
  }
}

void Attempt::hear(Keeper& keeper) {
  try {
    while (const auto message = keeper.channel ? keeper.channel->receive(0.0) : std::nullopt)
      hear(keeper, *message);
  } catch (const Error& problem) {
    if (dynamic_cast<const ConnectionClosed*>(&problem) == nullptr) log_error(problem.what());
    lose(keeper);
  }
}

void Attempt::hear(Keeper& keeper, const std::string& message) {
  keeper.heard = Clock::now();
  if (hosts_ && keeper.rank < 0 && message.starts_with(host_greeting))
    return hosts_->add(std::move(keeper.channel), message);
  if (message == asked_message) return request_.ask();
  const RankReport report = report_from_json(message);
  if (keeper.rank < 0) {
    expect(report.rank >= 0 && report.rank < placement_.ranks() && !reports_.contains(report.rank),
           "lockrun: a second keeper for rank ", report.rank, " from ", keeper.channel->peer());
    keeper.rank = report.rank;
    keeper.channel->send(plan(report));
    if (is_output_held_) keeper.channel->send(hold_message);
  }
  expect(report.rank == keeper.rank, "lockrun: the keeper of rank ", keeper.rank,
         " reports about another rank");
  RankReport& known = reports_[report.rank];
  if (report.has_ended && !known.has_ended) ended_ranks_.push_back(report.rank);
  known = report;
  if (!report.has_ended) return;
  const int code = report.ending.code();
  if (code == exit_stopped && !first_left_) first_left_ = Clock::now();
  if (code != 0 && code != exit_stopped) fail("");
}

void Attempt::lose(Keeper& keeper) {
  keeper.channel = nullptr;
  if (!running(keeper)) return;
  RankReport& report = reports_.at(keeper.rank);
  report.has_ended = report.is_lost = true;
  ended_ranks_.push_back(keeper.rank);
  fail("");
}

void Attempt::look_at_launcher() {
  if (launcher_ending_ || !launcher_->ending()) return;
  launcher_ending_ = launcher_->ending();
  attend();  // handles the last messages of the keepers
  // A killed launcher takes its keepers along. It is the cause, even if their loss was noticed first.
  const bool took_keepers = launcher_ending_->signal != 0 && std::ranges::all_of(ended_ranks_, [&](int rank) {
                              return reports_.at(rank).is_lost;
                            });
  if (all_have_left() || (failed_ && !took_keepers)) return;
  const std::string missing = missing_ranks();
  fail(concat(name(kind_), " ended (", describe(*launcher_ending_), ") before ",
              missing.empty() ? "its ranks did" : missing + " had started"));
}

void Attempt::look_for_a_stop() {
  if (launcher_ending_ || process_state(launcher_->id()) != 'T') return stopped_.reset();
  if (!stopped_) stopped_ = Clock::now();
  if (seconds_since(*stopped_) > most_stopped_seconds)
    fail(concat(name(kind_), " was stopped (SIGSTOP) for ", most_stopped_seconds, " s"));
}

void Attempt::look_at_deadlines() {
  if (failed_ || all_have_left()) return;
  if (!all_are_leaving())
    leaving_.reset();
  else if (!leaving_)
    leaving_ = Clock::now();
  else if (seconds_since(*leaving_) > most_leaving_seconds)
    fail(concat("the ranks were done, but did not end within ", most_leaving_seconds, " s"));
  if (!all_started() && seconds_since(started_) > options_.start_seconds)
    fail(concat(missing_ranks(), " did not start within ", options_.start_seconds, " s"));
  for (const Keeper& keeper : keepers_) {
    const RankReport* report = running(keeper);
    if (report && seconds_since(keeper.heard) > keeper_silence_seconds)
      fail(concat("the keeper of rank ", keeper.rank, " (host ", report->host, ") has stopped reporting"));
  }
  const double grace = grace_seconds();
  const std::string within = concat(" within ", std::round(grace), " s (--grace)");
  if (request_.seconds_since_asked() > grace)
    fail(concat("the ranks were asked to stop and did not stop", within));
  else if (first_left_ && seconds_since(*first_left_) > grace)
    fail(concat("a rank stopped after a snapshot, and the others did not follow", within));
}

double Attempt::grace_seconds() const {
  // A snapshot may still be in progress when the last one is requested, so the time counts twice.
  double snapshots = 0.0;
  bool is_writing = false;
  for (const auto& [rank, report] : reports_) {
    snapshots = std::max(snapshots, 2 * report.snapshot_seconds);
    is_writing |= report.phase == "snapshot" && !report.has_ended;
  }
  return (options_.grace_seconds + snapshots) * (is_writing ? writing_factor : 1.0);
}

void Attempt::pass_request_on() {
  if (!request_.is_asked() || request_passed_on_ || !all_started()) return;
  request_passed_on_ = true;
  log_info("lockrun: asked to stop: ranks finish their step and save; Ctrl-C again ends at once");
  send_to_keepers(stop_message);
}

void Attempt::hold_output(bool is_held) {
  if (is_held == std::exchange(is_output_held_, is_held)) return;
  send_to_keepers(is_held ? hold_message : release_message);
}

void Attempt::fail(const std::string& other_cause) {
  if (other_cause_.empty()) other_cause_ = other_cause;
  if (failed_) return;
  failed_ = Clock::now();
  failed_while_asked_ = request_.is_asked();
}

void Attempt::send_to_keepers(const std::string& message) {
  for (Keeper& keeper : keepers_) {
    try {
      if (keeper.channel) keeper.channel->send(message);
    } catch (const Error&) {
      // hear() notices that the keeper is gone.
    }
  }
}

std::string Attempt::plan(const RankReport& hello) const {
  // Hosts may have one name, but every launcher gives them their ranks in order.
  size_t group = 0;
  for (int end = placement_.hosts[0].ranks; end <= hello.rank; end += placement_.hosts[group].ranks) ++group;
  std::map<std::string, std::string> environment = {
      {"WORLD_SIZE", std::to_string(placement_.ranks())},
      {"GROUP_RANK", std::to_string(group)},
      {"GROUP_WORLD_SIZE", std::to_string(placement_.hosts.size())},
      {"LOCAL_WORLD_SIZE", std::to_string(placement_.hosts[group].ranks)},
      {"MASTER_ADDR", placement_.address},
      {"MASTER_PORT", std::to_string(options_.master_port)},
      // A requeued Slurm job has a restart count of its own. Its program then resumes as after a restart.
      {"LOCKSTEP_RESTART_COUNT", std::to_string(restart_count() + earlier_.begun)},
      {"LOCKSTEP_RUN_ID", options_.run_id},
      {"LOCKSTEP_GENERATION", std::to_string(options_.first_generation + earlier_.all)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(earlier_.all)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(options_.max_restarts)},
      {"TORCHELASTIC_RUN_ID", options_.nodes.id}};
  environment.merge(own_settings());
  return to_json({.command = options_.command,
                  .environment = environment,
                  .folder = folders_.files.path(),
                  .logs = options_.logs});
}

std::string Attempt::missing_ranks() const {
  std::string text;
  for (int rank = 0; rank < placement_.ranks(); ++rank)
    if (!reports_.contains(rank)) text += concat(text.empty() ? "rank " : ", ", rank);
  return text;
}

bool Attempt::all_started() const {
  const auto has_started = [](const auto& entry) { return entry.second.process != 0; };
  return std::ranges::count_if(reports_, has_started) == placement_.ranks();
}

bool Attempt::all_have_left() const {
  const auto has_left = [](const auto& entry) {
    const RankReport& report = entry.second;
    const bool is_good = report.ending.is_success() || report.ending.code() == exit_stopped;
    return report.has_ended && !report.is_lost && is_good;
  };
  return std::ranges::count_if(reports_, has_left) == placement_.ranks();
}

bool Attempt::all_are_leaving() const {
  const auto is_leaving = [](const auto& entry) {
    return entry.second.has_ended || entry.second.phase == leaving_phase;
  };
  return std::ranges::count_if(reports_, is_leaving) == placement_.ranks();
}

const RankReport* Attempt::running(const Keeper& keeper) const {
  const auto known = reports_.find(keeper.rank);
  return known == reports_.end() || known->second.has_ended ? nullptr : &known->second;
}

bool Attempt::is_over() const {
  if (request_.is_cancelled() || all_have_left()) return true;
  if (failed_) return seconds_since(*failed_) > settle_seconds;
  // Before all ranks run, there is no progress to write a snapshot of.
  return request_.is_asked() && !all_started();
}

void Attempt::end(const RankOutput& output) {
  send_to_keepers(end_message);
  const Clock::time_point begin = Clock::now();
  // After a success keepers and launcher may have to wait for a slow reader of the output. A signal ends
  // that.
  const bool is_good = all_have_left() && !failed_ && !request_.is_cancelled();
  const auto may_stay = [&](const Keeper& keeper) {
    const RankReport* report = running(keeper);
    // A keeper with the stacks of its rank is about to end it.
    const bool may_be_long = is_good || (report && !report->stacks.empty() && !request_.is_cancelled());
    return seconds_since(begin) < leave_seconds ||
           (may_be_long && seconds_since(keeper.heard) < keeper_silence_seconds);
  };
  while (std::ranges::any_of(keepers_, may_stay)) {
    wait(0.05);
    if (is_good && request_.has_signal()) break;
    attend();
  }
  if (hosts_) hosts_->end();
  // Without its keepers the launcher cleans up and ends. Ranks that have not started must not start now.
  if (!missing_ranks().empty()) launcher_->signal(SIGTERM);
  bool is_held = is_good;
  while (!launcher_->wait(stopped_ ? 0.0 : leave_seconds)) {
    const bool was_held = std::exchange(is_held, is_good && !output.flush(0.0));
    if ((was_held || is_held) && !request_.has_signal()) continue;
    launcher_->signal_group(SIGKILL);
    break;
  }
  for (const auto& [rank, report] : reports_) {
    const bool is_here = report.host == host_name() && report.machine == boot_id();
    if (report.is_lost && report.process > 0 && is_here) ::kill(-report.process, SIGKILL);
  }
  launcher_.reset();
  nodes_.end_generation();
}

AttemptFailure Attempt::failure() const {
  AttemptFailure failure{.reports = {}, .other_cause = other_cause_, .launcher_ending = launcher_ending_};
  for (const int rank : ended_ranks_) failure.reports.push_back(reports_.at(rank));
  for (const auto& [rank, report] : reports_)
    if (!report.has_ended) failure.reports.push_back(report);
  return failure;
}

std::string Attempt::lost_output() const {
  for (const auto& [rank, report] : reports_)
    if (!report.lost_output.empty()) return concat("rank ", rank, ": ", report.lost_output);
  return "";
}

bool Attempt::has_begun() const {
  return std::ranges::any_of(reports_, [](const auto& entry) { return !entry.second.phase.empty(); });
}

int64_t Attempt::most(int64_t RankReport::*field) const {
  RankReport most;
  for (const auto& [rank, report] : reports_) most.*field = std::max(most.*field, report.*field);
  return most.*field;
}

}  // namespace lockstep
