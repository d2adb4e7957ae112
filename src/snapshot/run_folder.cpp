// SPDX-License-Identifier: Apache-2.0
#include "snapshot/run_folder.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/heartbeat.h"
#include "core/log.h"
#include "core/text.h"
#include "store/object_store.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// The first of path.1, path.2, ... that is free.
std::string free_name(const std::string& path) {
  int number = 1;
  while (fs::exists(concat(path, ".", number))) ++number;
  return concat(path, ".", number);
}

/// "runs/a/", "runs/./a" and a link to it are one place.
fs::path place_of(const std::string& path) {
  fs::path place = fs::weakly_canonical(fs::absolute(path));
  return place.has_filename() ? place : place.parent_path();
}

/// Without a slash at its end, so that a number can be added.
std::string plain(const std::string& path) {
  const std::string normal = fs::path(path).lexically_normal().string();
  return normal.size() > 1 && normal.ends_with('/') ? normal.substr(0, normal.size() - 1) : normal;
}

void rename_aside(const std::string& key, const std::string& path) {
  const std::string aside = free_name(path);
  std::error_code problem;
  fs::rename(path, aside, problem);
  require(!problem, key, ": ", path, " holds an earlier run and cannot be moved to ", aside, ": ",
          problem.message(), "; choose another ", key);
  log_info(concat("the earlier run in ", path, " is now in ", aside));
}

/// The same files on every rank.
SnapshotFiles broadcast(SnapshotFiles files, const World& world) {
  Communicator& communicator = world.communicator();
  const int64_t count = std::stoll(communicator.broadcast_text(std::to_string(files.size()), 0));
  if (world.size() == 1) return files;
  SnapshotFiles received;
  auto next = files.begin();
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = communicator.broadcast_text(world.is_first() ? next->first : "", 0);
    received[name] = communicator.broadcast_text(world.is_first() ? next->second : "", 0);
    if (world.is_first()) ++next;
  }
  return received;
}

}  // namespace

RunFolder::RunFolder(const Config& config, const World& world, const Artifacts& artifacts)
    : config_(config), artifacts_(artifacts) {
  // Reading a large snapshot may take longer than any collective.
  world.communicator().set_timeout(std::numeric_limits<double>::infinity());
  on_first_rank(world, [&] {
    take();
    decide();
    tell();
  });
  const bool is_finished =
      world.communicator().broadcast_text(finished_run_ ? "finished" : "", 0) == "finished";
  if (is_finished && !world.is_first()) finished_run_ = FoundRun{.is_finished = true};
  const SnapshotFiles files = broadcast(std::exchange(files_, {}), world);
  world.communicator().set_timeout(config.dist.timeout_s);
  if (!files.empty() && !world.is_first()) snapshot_ = from_files(files, config.snapshot.path);
}

void RunFolder::check() const {
  for (const auto& owner : owners_) owner->check();
}

void RunFolder::check_recently() const {
  for (const auto& owner : owners_) owner->check_recently();
}

/// So every place is tried before anything is computed.
void RunFolder::take() {
  const std::string& path = config_.snapshot.path;
  owners_.push_back(std::make_unique<FolderOwner>("log.dir", config_.log.dir));
  const std::optional<std::string> folder = local_path(path);
  if (path.empty() || (folder && place_of(*folder) == place_of(config_.log.dir))) return;
  // Whoever lingers or is silent in one is so in the other.
  const double patience = std::max(0.5, FolderOwner::patience_seconds - owners_.front()->waited_seconds());
  if (folder)
    owners_.push_back(
        std::make_unique<FolderOwner>("snapshot.path", *folder, Owner::this_process(), patience));
  else
    SnapshotStore(path, config_.snapshot.keep).try_to_write();
}

bool RunFolder::snapshots_are_inside() const {
  const std::optional<std::string> folder = local_path(config_.snapshot.path);
  if (!folder || config_.snapshot.path.empty()) return false;
  const fs::path inside = place_of(*folder), around = place_of(config_.log.dir);
  return std::mismatch(around.begin(), around.end(), inside.begin(), inside.end()).first == around.end();
}

void RunFolder::find() {
  const SnapshotConfig& snapshot = config_.snapshot;
  if (snapshot.path.empty()) return;
  std::string damage;
  auto files = SnapshotStore(snapshot.path, snapshot.keep).newest([&](const std::string& problem) {
    log_warning(concat(problem, "; an older snapshot is tried"));
    damage = problem;
  });
  // Starting over would overwrite what a person might still want to save.
  require(files || damage.empty(), "snapshot.path: no valid snapshot is left in ", snapshot.path, ": ",
          damage, "; --fresh moves it away and starts from scratch");
  require(files || snapshot.resume != "required", "snapshot.resume = required, but there is no snapshot in ",
          snapshot.path);
  if (!files) return;
  files_ = std::move(*files);
  snapshot_ = from_files(files_, snapshot.path);
  in_snapshots_ = run_of(*snapshot_, config_, artifacts_);
}

void RunFolder::decide() {
  in_log_folder_ = find_run(config_, artifacts_);
  const std::string& path = config_.snapshot.path;
  const bool is_restart = restart_count() > 0;
  if (config_.snapshot.resume == "never" && !is_restart) {
    move_aside(in_log_folder_.has_value(),
               !path.empty() && SnapshotStore(path, config_.snapshot.keep).holds_any());
    return;
  }
  find();
  const bool is_one_run = snapshots_are_inside() || (in_log_folder_ && in_log_folder_->snapshot_path == path);
  // The newest snapshot knows better than the metrics, whose end may have been lost or outlived it.
  if (in_log_folder_ && in_snapshots_ && is_one_run)
    in_log_folder_->is_finished &= in_snapshots_->is_finished;
  const bool may_move = config_.snapshot.resume == "auto" && !is_restart;
  if (in_snapshots_ && must_move(*in_snapshots_, path, may_move && is_one_run)) return move_aside(true, true);
  if (in_log_folder_ && must_move(*in_log_folder_, config_.log.dir, may_move)) return move_aside(true, false);
  if (!in_log_folder_) return;
  if (in_log_folder_->is_finished) finished_run_ = in_log_folder_;
  if (!in_log_folder_->is_finished && !(in_snapshots_ && is_one_run)) require_same_snapshot_path();
}

/// False where the run has the same meaning. UserError where it has another and has to stay.
bool RunFolder::must_move(const FoundRun& run, const std::string& place, bool may_move) const {
  if (run.differences.empty()) return false;
  const bool is_elsewhere = place == config_.snapshot.path && !snapshots_are_inside();
  const std::string key = is_elsewhere ? "snapshot.path" : "log.dir";
  const std::string moved = free_name(plain(is_elsewhere ? place : config_.log.dir));
  const std::string anew =
      local_path(place) ? concat("--fresh moves it to ", moved, " and starts anew; ") : "";
  require(run.is_finished && may_move, place, " holds ", run.is_finished ? "a run" : "an unfinished run",
          " with other settings, at step ", run.step, ": ", joined(run.differences, "; "),
          ". To go on with it use its values; ", anew, "another ", key, " leaves it alone");
  return true;
}

/// Going on from elsewhere would cut the metrics of a run.
void RunFolder::require_same_snapshot_path() const {
  const std::string& theirs = in_log_folder_->snapshot_path;
  require(theirs.empty() || theirs == config_.snapshot.path, config_.log.dir,
          " holds an unfinished run, at step ", in_log_folder_->step, ", that keeps its snapshots in ",
          theirs, ": snapshot.path=", theirs, " goes on with it; --fresh starts anew");
}

void RunFolder::move_aside(bool log_folder, bool snapshots) {
  const bool is_inside = snapshots_are_inside();
  const std::string& path = config_.snapshot.path;
  const std::optional<std::string> folder = local_path(path);
  // Renaming is all that a bucket cannot do, so there its user has to decide.
  require(!snapshots || folder, path,
          " holds the snapshots of an earlier run; use another snapshot.path, or delete them (aws s3 rm "
          "--recursive ",
          path, ")");
  check();
  if (log_folder || (snapshots && is_inside)) rename_aside("log.dir", plain(config_.log.dir));
  if (snapshots && !is_inside) rename_aside("snapshot.path", plain(*folder));
  if (log_folder || snapshots) {
    owners_.clear();
    take();
  }
  if (log_folder) in_log_folder_.reset();
  if (!snapshots && !(log_folder && is_inside)) return;
  in_snapshots_.reset();
  snapshot_.reset();
  files_.clear();
}

void RunFolder::tell() const {
  if (finished_run_) return;
  const std::string how_to_start_anew = restart_count() > 0 ? "" : "; --fresh starts anew";
  if (snapshot_)
    log_info(
        concat("resuming after step ", snapshot_->step, " from ", config_.snapshot.path, how_to_start_anew));
  else if (in_log_folder_)
    log_info(concat("the run in ", config_.log.dir, " has no snapshot: it starts from its first step again"));
}

}  // namespace lockstep
