// SPDX-License-Identifier: Apache-2.0
#include "lockstep/elastic/supervisor.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"
#include "lockstep/elastic/launchers.h"
#include "lockstep/elastic/nodes.h"
#include "lockstep/events/events.h"
#include "lockstep/net/socket.h"

namespace lockstep {
namespace {

/// Seconds that slow readers of lockrun's output can delay a restart.
constexpr double most_flush_seconds = 0.5;

}  // namespace

std::optional<double> RestartBudget::next_wait(int64_t snapshot_step) {
  if (snapshot_step > newest_snapshot_) {
    newest_snapshot_ = snapshot_step;
    used_ = 0;
  }
  if (used_ >= most_restarts_) return std::nullopt;
  constexpr double first_seconds = 0.2, most_seconds = 30.0;
  return std::min(most_seconds, std::ldexp(first_seconds, std::min(used_++, 20)));
}

void provide_descriptors_for(int ranks, int here) {
  constexpr size_t of_lockrun_and_mpirun = 48;
  // mpirun and Open MPI's daemons have a terminal, pipes and a connection for each rank on their host.
  constexpr size_t for_each_here = 4;
  provide_descriptors(of_lockrun_and_mpirun + std::max(size_t(ranks), for_each_here * size_t(here)),
                      concat("lockrun: ", ranks, " ranks"));
}

Supervisor::Supervisor(const LaunchOptions& options, Nodes& nodes, StopRequest& request)
    : options_(options), nodes_(nodes), request_(request), budget_(options.max_restarts) {}

int Supervisor::run() {
  try {
    std::optional<int> code;
    while (!code) {
      const std::optional<JobLayout> placement = gather();
      code = placement ? run_generation(*placement) : leave_early();
    }
    nodes_.finish(*code);
    return deliver_output(*code);
  } catch (const UserError&) {
    nodes_.finish(exit_usage);
    throw;
  } catch (const std::exception&) {
    nodes_.finish(1);
    throw;
  }
}

std::optional<JobLayout> Supervisor::gather() {
  while (true) {
    request_.hear();
    while (const auto event = nodes_.next_event())
      if (event->kind == NodeEvent::Kind::stop_requested) request_.ask(event->node);
    if (request_.is_asked() || request_.is_cancelled()) return std::nullopt;
    if (auto placement = nodes_.gather(0.2)) return placement;
  }
}

std::optional<int> Supervisor::run_generation(JobLayout placement) {
  if (replicas_ > 0 && placement.ranks() > replicas_) {
    log_info(concat("lockrun: starts ", replicas_, " of ", placement.ranks(),
                    " ranks, because the run has no more replicas"));
    placement.limit(static_cast<int>(replicas_));
  }
  const int on_each = placement.hosts.at(0).ranks;
  const Launcher launcher = choose_launcher(options_, placement);
  provide_descriptors_for(placement.ranks(), launcher == Launcher::srun ? 0 : on_each);
  if (earlier_.all == 0 && on_each > available_cores())
    log_info(concat("lockrun: ", on_each, " ranks share the ", available_cores(), " cores of a host"));
  Attempt attempt(options_, placement, launcher, nodes_, request_, earlier_);
  const Attempt::Outcome outcome = attempt.run(output_);
  if (lost_output_.empty()) lost_output_ = attempt.lost_output();
  // The last words of ranks come before lockrun's own, unless a reader is slow.
  output_.flush(most_flush_seconds);
  if (outcome == Attempt::Outcome::done) return 0;
  if (outcome == Attempt::Outcome::stopped) return exit_stopped;
  if (outcome == Attempt::Outcome::left_early) return leave_early();
  const AttemptFailure failure = attempt.failure();
  report(failure);
  ++earlier_.all;
  if (attempt.has_begun()) ++earlier_.begun;
  if (attempt.replicas() > 0) replicas_ = attempt.replicas();
  const int code = exit_code(failure);
  if (attempt.failed_while_asked() || code == exit_usage) return code;
  if (request_.is_asked()) return exit_stopped;
  const std::optional<double> wait = budget_.next_wait(attempt.snapshot_step());
  if (!wait) {
    log_error(concat("lockrun: gave up after ", options_.max_restarts, " restarts without a newer snapshot"));
    return code;
  }
  leave_out_wrong(failure, placement);
  log_info(concat("lockrun: restarts in ", *wait, " s; ", budget_.left(),
                  " more restarts without a newer snapshot"));
  wait_for_any({request_.descriptor(), nodes_.events()}, *wait);
  return std::nullopt;
}

int Supervisor::deliver_output(int code) {
  if (request_.is_cancelled()) return code;
  const bool is_all = output_.flush(std::numeric_limits<double>::infinity(), request_.descriptor());
  const int error = output_.output.error();
  std::string reason = lost_output_;
  if (error != 0 && error != EPIPE) reason = std::strerror(error);
  if (!is_all) reason = "lockrun was asked to stop while its reader was slow";
  if (reason.empty()) return code;
  log_error("lockrun: the output of the ranks is incomplete: " + reason);
  return code == 0 ? 1 : code;
}

void Supervisor::report(const AttemptFailure& failure) const {
  log_error("lockrun: " + describe(failure));
  record(failure);
  if (options_.logs.folder.empty()) return;
  try {
    std::filesystem::create_directories(options_.logs.folder);
    write_file(options_.logs.folder + "/failure.json", failure_json(failure, earlier_.all));
  } catch (const std::exception& problem) {
    log_warning(concat("lockrun: cannot write failure.json: ", problem.what()));
  }
}

void Supervisor::record(const AttemptFailure& failure) const {
  const auto first = std::ranges::find(failure.reports, 0, &RankReport::rank);
  if (first == failure.reports.end() || first->log_file.empty()) return;
  const std::filesystem::path folder = std::filesystem::path(first->log_file).parent_path();
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return;
  constexpr size_t most_bytes = 4096;
  const RankReport* rank = root_cause(failure);
  append_event(folder, "failure", rank ? rank->step : first->step,
               {{"cause", shortened(describe(failure), most_bytes)},
                {"rank", rank ? std::to_string(rank->rank) : ""},
                {"host", rank ? rank->host : ""},
                {"exit_code", std::to_string(exit_code(failure))}});
}

void Supervisor::leave_out_wrong(const AttemptFailure& failure, const JobLayout& placement) {
  for (const RankReport& rank : failure.reports) {
    if (!rank.computed_wrong) continue;
    const bool is_left_out = nodes_.leave_out(placement.host_of(rank.rank));
    log_warning(concat("lockrun: rank ", rank.rank, " computed wrong; host ", rank.host,
                       is_left_out ? " is left out from here on"
                                   : " stays in use, because lockrun cannot start without it"));
  }
}

int Supervisor::leave_early() const {
  if (request_.is_cancelled()) return exit_interrupted;
  log_info(
      "lockrun: asked to stop while no ranks ran; run the same command again to resume from the newest "
      "snapshot");
  return exit_stopped;
}

}  // namespace lockstep
