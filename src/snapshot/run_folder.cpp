// SPDX-License-Identifier: Apache-2.0
#include "lockstep/snapshot/run_folder.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"
#include "lockstep/snapshot/snapshot_store.h"
#include "lockstep/store/object_store.h"
#include "lockstep/store/owner.h"
#include "lockstep/store/s3_address.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

/// Returns the canonical path. "runs/a/", "runs/./a" and a link to it have the same one.
fs::path canonical(const std::string& path) {
  return without_slash(fs::weakly_canonical(fs::absolute(path)));
}

/// Returns the path without a slash at its end, so that a number can be appended.
std::string plain(const std::string& path) {
  return without_slash(fs::path(path).lexically_normal()).string();
}

/// Returns the first of path.1, path.2, ... that does not exist.
std::string free_name(const std::string& path) {
  int number = 1;
  while (fs::exists(concat(plain(path), ".", number))) ++number;
  return concat(plain(path), ".", number);
}

/// Renames the folder of an earlier run to free_name() and logs it. Throws UserError naming `key`.
void rename_aside(const std::string& key, const std::string& folder) {
  const std::string path = plain(folder), aside = free_name(path);
  std::error_code problem;
  fs::rename(path, aside, problem);
  require(!problem, key, ": ", path, " holds an earlier run and cannot be moved to ", aside, ": ",
          problem.message(), "; choose another ", key);
  log_info(concat("the earlier run in ", path, " is now in ", aside));
}

}  // namespace

RunFolder::RunFolder(RunRequest run, const World& world) : run_(std::move(run)), world_(world) {
  Communicator& communicator = world.communicator();
  const NoTimeout no_timeout(communicator);
  on_first_rank(world, [&] {
    take_folders();
    take_bucket();
    decide();
    if (const auto& found = in_snapshots_ ? in_snapshots_ : in_log_folder_)
      resumed_settings_ = found->settings;
    log_opening();
  });
  const bool is_finished = communicator.broadcast_value(finished_run_.has_value(), 0);
  if (is_finished && !world.is_first()) finished_run_ = FoundRun{.is_finished = true};
  resumed_settings_ = communicator.broadcast_text(resumed_settings_, 0);
  is_shared_ = is_finished || is_shared_by_all(world, run_.snapshots);
  share_snapshot();
}

/// Sends rank 0's snapshot, without its tensors, to all ranks.
void RunFolder::share_snapshot() {
  Communicator& communicator = world_.communicator();
  const std::string text = communicator.broadcast_text(snapshot_ ? snapshot_->text() : "", 0);
  const std::string group = communicator.broadcast_text(snapshot_ ? snapshot_->group() : "", 0);
  if (text.empty() || world_.is_first()) return;
  const std::string& path = run_.snapshots;
  snapshot_.emplace(text, is_shared_ ? open_store(path) : nullptr, is_shared_ ? group : path);
}

void RunFolder::load(PlacedTensors& tensors) {
  if (!snapshot_) return;
  const NoTimeout no_timeout(world_.communicator());
  for (bool is_again = false;; is_again = !is_again) {
    try {
      return restore(*snapshot_, world_, tensors);
    } catch (const UserError& damage) {
      // A single reply of a server may be wrong.
      if (!is_again && !local_path(run_.snapshots)) {
        if (world_.is_first()) log_warning(concat(damage.what(), "; reading it again"));
        continue;
      }
      on_first_rank(world_, [&] {
        fall_back(damage.what());
        // This start has the settings of the damaged snapshot. They have to be those of this one too.
        require(run_of(snapshot_->state(), run_).differences.empty(), none_is_left(damage.what()));
        log_info(concat("resuming after step ", snapshot_->state().step, " instead"));
      });
      share_snapshot();
    }
  }
}

bool RunFolder::go_back(int64_t step, const std::string& problem, PlacedTensors& tensors) {
  const NoTimeout no_timeout(world_.communicator());
  const int64_t newer = snapshot_->state().step;
  SnapshotStore store(run_.snapshots, run_.options.keep);
  try {
    on_first_rank(world_, [&] {
      require(store.failed_step().step != step, "the run went back for step ", step, " before");
      auto older = newest_below(newer);
      require(older && run_of(older->state(), run_).differences.empty(), "there is none");
      log_warning(concat("step ", step, ": ", problem, " although it was computed from the snapshot of step ",
                         newer, ", which may be wrong: going back once to the snapshot of step ",
                         older->state().step));
      snapshot_ = std::move(older);
    });
    share_snapshot();
    load(tensors);
  } catch (const UserError& reason) {
    if (world_.is_first()) log_info(concat("no older snapshot is tried: ", reason.what()));
    return false;
  }
  on_first_rank(world_, [&] {
    check();
    store.set_failed_step({.step = step, .passed_over = newer});
  });
  return true;
}

void RunFolder::check_folders() const {
  for (const FolderOwner& owner : owners_) owner.check();
}

void RunFolder::check() const {
  check_folders();
  if (lease_) lease_->check();
}

void RunFolder::check_recently() const {
  for (const FolderOwner& owner : owners_) owner.check_recently();
  if (lease_) lease_->check_recently();
}

/// Takes ownership of the folders. Every location is tried before anything is computed.
void RunFolder::take_folders() {
  const std::string& path = run_.snapshots;
  const double wait_seconds = 60.0 * run_.options.wait_minutes;
  wait_for_owner(wait_seconds, [&] { owners_.emplace_back("log.dir", run_.log_folder); });
  const std::optional<std::string> folder = local_path(path);
  if (path.empty() || !folder || canonical(*folder) == canonical(run_.log_folder)) return;
  // An earlier start of the run holds both folders. The wait for the first folder counts for the second.
  const double patience = std::max(0.5, FolderOwner::patience_seconds - owners_.front().waited_seconds());
  wait_for_owner(wait_seconds,
                 [&] { owners_.emplace_back("snapshot.path", *folder, Owner::this_process(), patience); });
}

/// Takes the lease on a bucket, and tries to write there.
void RunFolder::take_bucket() {
  const std::string& path = run_.snapshots;
  if (path.empty() || local_path(path)) return;
  // A job before this one may still end, and a batch system would not start this one again.
  constexpr double least_wait_seconds = 600.0;
  const bool is_unattended = is_supervised() || restart_count() > 0;
  const double wait_seconds =
      std::max(60.0 * run_.options.wait_minutes, is_unattended ? least_wait_seconds : 0.0);
  try {
    wait_for_owner(wait_seconds,
                   [&] { lease_ = std::make_unique<BucketLease>("snapshot.path", parse_s3_address(path)); });
  } catch (const OwnedByAnother& other) {
    require(is_unattended, other.what());
    throw Error(other.what());  // the batch system may start this job once more
  }
  SnapshotStore(path, run_.options.keep).try_to_write();
}

bool RunFolder::snapshots_are_inside() const {
  const std::optional<std::string> folder = local_path(run_.snapshots);
  if (!folder || run_.snapshots.empty()) return false;
  const fs::path inside = canonical(*folder), around = canonical(run_.log_folder);
  return std::mismatch(around.begin(), around.end(), inside.begin(), inside.end()).first == around.end();
}

std::string RunFolder::none_is_left(const std::string& damage) const {
  return concat("snapshot.path: no valid snapshot is left in ", run_.snapshots, ": ", damage,
                "; --fresh moves it away and starts from scratch");
}

/// Returns the newest snapshot of a step below `step` whose state is valid. Throws UserError if all of them
/// are damaged, or if `damage` names a damaged one and there is no other.
std::optional<StoredSnapshot> RunFolder::newest_below(int64_t step, std::string damage) const {
  const auto report = [&](const std::string& problem) {
    log_warning(concat(problem, "; trying an older snapshot"));
    damage = problem;
  };
  auto found = SnapshotStore(run_.snapshots, run_.options.keep).newest(report, step);
  // Starting over would overwrite data that the user may still want to save.
  require(found || damage.empty(), none_is_left(damage));
  return found;
}

/// Replaces the snapshot by the one before, because it is damaged. An earlier start of the run that still
/// ends may have replaced it by a newer one.
void RunFolder::fall_back(const std::string& damage) {
  const int64_t step = snapshot_->state().step;
  newest_step_ = std::max(newest_step_, step);
  std::optional<StoredSnapshot> newest;
  if (!local_path(run_.snapshots)) newest = newest_below(std::numeric_limits<int64_t>::max(), damage);
  const bool is_newer = newest && newest->state().step > newest_step_;
  log_warning(concat(damage, "; trying ", is_newer ? "a newer" : "an older", " snapshot"));
  snapshot_ = is_newer ? std::move(newest) : newest_below(step, damage);
}

void RunFolder::find() {
  if (run_.snapshots.empty()) return;
  snapshot_ = newest_below(std::numeric_limits<int64_t>::max());
  // Only a valid snapshot proves that a run has finished, and a finished run loads none.
  const bool has_ended = in_log_folder_ && in_log_folder_->is_finished && local_path(run_.snapshots);
  while (has_ended && snapshot_ && snapshot_->state().is_finished && snapshot_->state().step >= run_.steps) {
    try {
      snapshot_->verify();
      break;
    } catch (const UserError& damage) {
      fall_back(damage.what());
    }
  }
  require(snapshot_ || run_.options.resume != Resume::required,
          "snapshot.resume = required, but there is no snapshot in ", run_.snapshots);
  if (snapshot_) in_snapshots_ = run_of(snapshot_->state(), run_);
}

void RunFolder::decide() {
  in_log_folder_ = find_run(run_);
  const std::string& path = run_.snapshots;
  const bool is_restart = restart_count() > 0;
  if (run_.options.resume == Resume::never && !is_restart) {
    move_aside(in_log_folder_.has_value(),
               !path.empty() && !SnapshotStore(path, run_.options.keep).names().empty());
    return;
  }
  find();
  const bool is_one_run = snapshots_are_inside() || (in_log_folder_ && in_log_folder_->snapshot_path == path);
  // The newest snapshot is more reliable than the metrics. Their last line may be lost, or may survive the
  // last snapshot. A snapshot may also be the end of a run that was extended afterwards.
  if (in_log_folder_ && in_snapshots_ && is_one_run) {
    in_snapshots_->is_finished &= in_log_folder_->step <= in_snapshots_->step;
    in_log_folder_->is_finished &= in_snapshots_->is_finished;
  }
  // A snapshot has the count of validations, so the resumed run decides whether its patience is over.
  const bool has_snapshot = in_snapshots_ && is_one_run;
  const int64_t patience = run_.patience;
  const bool is_patient = in_log_folder_ && (patience == 0 || patience > in_log_folder_->patience);
  const bool is_short = in_log_folder_ && in_log_folder_->step < run_.steps && (has_snapshot || is_patient);
  // Without a snapshot a finished run cannot get more steps.
  if (is_short && in_log_folder_->is_finished && !has_snapshot)
    in_log_folder_->differences.push_back(
        concat("train.steps = ", in_log_folder_->step, " there, ", run_.steps, " here"));
  const bool may_move = run_.options.resume == Resume::if_possible && !is_restart;
  if (in_snapshots_ && must_move(*in_snapshots_, path, may_move && is_one_run)) return move_aside(true, true);
  if (in_log_folder_ && must_move(*in_log_folder_, run_.log_folder, may_move)) return move_aside(true, false);
  if (!in_log_folder_) return;
  const bool is_over = in_log_folder_->is_finished && !is_short;
  if (is_over) finished_run_ = in_log_folder_;
  if (!is_over && !has_snapshot) require_same_snapshot_path();
}

/// Returns false for a run of the same meaning. Throws UserError if the meaning differs and it has to stay.
bool RunFolder::must_move(const FoundRun& run, const std::string& place, bool may_move) const {
  if (run.differences.empty()) return false;
  const bool is_elsewhere = place == run_.snapshots && !snapshots_are_inside();
  const std::string key = is_elsewhere ? "snapshot.path" : "log.dir";
  const std::string moved = free_name(is_elsewhere ? place : run_.log_folder);
  const std::string anew =
      local_path(place) ? concat("--fresh moves it to ", moved, " and starts from scratch; ") : "";
  require(run.is_finished && may_move, place, " holds ", run.is_finished ? "a run" : "an unfinished run",
          " with other settings, at step ", run.step, ": ", joined(run.differences, "; "),
          ". To resume it, use its values; ", anew, "another ", key, " leaves it unchanged");
  return true;
}

/// Throws UserError if an unfinished run has its snapshots elsewhere: a start without them cuts its metrics.
void RunFolder::require_same_snapshot_path() const {
  const std::string& theirs = in_log_folder_->snapshot_path;
  require(theirs.empty() || theirs == run_.snapshots, run_.log_folder, " holds an unfinished run, at step ",
          in_log_folder_->step, ", that keeps its snapshots in ", theirs,
          ": snapshot.path=", shell_quoted(theirs), " resumes it; --fresh starts from scratch");
}

void RunFolder::move_aside(bool log_folder, bool snapshots) {
  const bool is_inside = snapshots_are_inside();
  const std::string& path = run_.snapshots;
  const std::optional<std::string> folder = local_path(path);
  // A bucket cannot rename, so the user has to decide.
  require(!snapshots || folder, path, " holds the snapshots of an earlier run (",
          joined(SnapshotStore(path, run_.options.keep).names()),
          "), and nothing in a bucket can be moved aside: choose another snapshot.path");
  check();
  if (log_folder || (snapshots && is_inside)) rename_aside("log.dir", run_.log_folder);
  if (snapshots && !is_inside) rename_aside("snapshot.path", *folder);
  if (log_folder || snapshots) {
    owners_.clear();
    take_folders();
  }
  if (log_folder) in_log_folder_.reset();
  if (!snapshots && !(log_folder && is_inside)) return;
  in_snapshots_.reset();
  snapshot_.reset();
}

void RunFolder::log_opening() const {
  if (finished_run_) return;
  if (snapshot_)
    log_info(concat("resuming after step ", snapshot_->state().step, " from ", run_.snapshots,
                    restart_count() > 0 ? "" : "; --fresh starts from scratch"));
  else if (in_log_folder_)
    log_info(concat("the run in ", run_.log_folder, " has no snapshot: it starts again from the first step"));
}

}  // namespace lockstep
