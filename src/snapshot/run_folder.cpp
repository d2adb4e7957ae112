// SPDX-License-Identifier: Apache-2.0
#include "snapshot/run_folder.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "config/config_file.h"
#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/heartbeat.h"
#include "core/log.h"
#include "core/text.h"
#include "snapshot/metrics.h"
#include "snapshot/snapshot.h"
#include "store/object_store.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Returns the first of path.1, path.2, ... that does not exist.
std::string free_name(const std::string& path) {
  int number = 1;
  while (fs::exists(concat(path, ".", number))) ++number;
  return concat(path, ".", number);
}

/// Returns the canonical path. "runs/a/", "runs/./a" and a link to it have the same one.
fs::path place_of(const std::string& path) {
  fs::path place = fs::weakly_canonical(fs::absolute(path));
  return place.has_filename() ? place : place.parent_path();
}

/// Returns the path without a slash at its end, so that a number can be appended.
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

std::string settings_path(const Config& config) { return config.log.dir + "/config.ini"; }
std::string data_path(const Config& config) { return config.log.dir + "/data.hash"; }

/// Lists semantic keys whose values differ. Also lists train.steps if fewer steps are set than are completed.
std::vector<std::string> differences_of(const Config& there, int64_t step, const Config& here) {
  std::map<std::string, std::string> values;
  for (const ConfigValue& value : config_values(there)) values[value.key] = value.value;
  std::vector<std::string> differences;
  for (const ConfigValue& value : config_values(here)) {
    const bool is_open = value.key == "train.decay_steps" && value.value == "0";
    if (value.key_class == KeyClass::semantic && values[value.key] != value.value && !is_open)
      differences.push_back(concat(value.key, " = ", values[value.key], " there, ", value.value, " here"));
  }
  if (here.train.steps > 0 && here.train.steps < step)
    differences.push_back(concat("train.steps = ", here.train.steps, " here, but ", step, " are done there"));
  return differences;
}

/// Returns whether a run that stopped early would also stop with the patience of this start.
bool has_run_out_of_patience(const FoundRun& run, const Config& config) {
  return config.train.patience > 0 && config.train.patience <= run.patience;
}

}  // namespace

RunFolder::RunFolder(const Config& config, const World& world, const Artifacts& artifacts)
    : config_(config), world_(world), artifacts_(artifacts) {
  Communicator& communicator = world.communicator();
  const NoTimeout no_timeout(communicator);
  on_first_rank(world, [&] {
    take();
    decide();
    const std::optional<FoundRun>& run = in_snapshots_ ? in_snapshots_ : in_log_folder_;
    if (run) decay_steps_ = run->settings.train.decay_steps;
    log_opening();
  });
  const bool is_finished = communicator.broadcast_text(finished_run_ ? "finished" : "", 0) == "finished";
  if (is_finished && !world.is_first()) finished_run_ = FoundRun{.is_finished = true};
  communicator.broadcast(&decay_steps_, sizeof decay_steps_, 0);
  is_shared_ = is_finished || is_shared_by_all(world, config.snapshot.path);
  share_snapshot();
}

/// Sends rank 0's snapshot, without its tensors, to all ranks.
void RunFolder::share_snapshot() {
  Communicator& communicator = world_.communicator();
  const std::string text = communicator.broadcast_text(snapshot_ ? snapshot_->text() : "", 0);
  const std::string group = communicator.broadcast_text(snapshot_ ? snapshot_->group() : "", 0);
  if (text.empty() || world_.is_first()) return;
  if (is_shared_)
    snapshot_.emplace(text, open_store(config_.snapshot.path), group);
  else
    snapshot_.emplace(text, config_.snapshot.path);
}

void RunFolder::load(PlacedTensors& tensors) {
  if (!snapshot_) return;
  const NoTimeout no_timeout(world_.communicator());
  for (bool is_loaded = false; !is_loaded;) {
    try {
      restore(*snapshot_, world_, tensors);
      is_loaded = true;
    } catch (const UserError& damage) {
      on_first_rank(world_, [&] {
        log_warning(concat(damage.what(), "; trying an older snapshot"));
        auto older = newest_below(snapshot_->state().step);
        require(older && run_of(older->state(), config_, artifacts_).differences.empty(), damage.what(),
                "; no valid snapshot is left in ", config_.snapshot.path,
                "; --fresh moves it away and starts from scratch");
        snapshot_ = std::move(older);
        log_info(concat("resuming after step ", snapshot_->state().step, " instead"));
      });
      share_snapshot();
    }
  }
}

bool RunFolder::go_back(int64_t step, const std::string& problem, PlacedTensors& tensors) {
  const NoTimeout no_timeout(world_.communicator());
  const int64_t newer = snapshot_->state().step;
  char goes_back = 0;
  on_first_rank(world_, [&] {
    if (SnapshotStore(config_.snapshot.path, config_.snapshot.keep).failed_step().step == step) return;
    std::optional<StoredSnapshot> older;
    try {
      older = newest_below(newer);
    } catch (const UserError&) {
      return;  // all are damaged
    }
    if (!older || !run_of(older->state(), config_, artifacts_).differences.empty()) return;
    log_warning(concat("step ", step, ": ", problem, " although it was computed from the snapshot of step ",
                       newer, ", which may be wrong: going back once to the snapshot of step ",
                       older->state().step));
    snapshot_ = std::move(older);
    goes_back = 1;
  });
  world_.communicator().broadcast(&goes_back, sizeof goes_back, 0);
  if (goes_back == 0) return false;
  share_snapshot();
  load(tensors);
  on_first_rank(world_, [&] {
    check();
    SnapshotStore(config_.snapshot.path, config_.snapshot.keep)
        .set_failed_step({.step = step, .passed_over = newer});
  });
  return true;
}

void RunFolder::check() const {
  for (const auto& owner : owners_) owner->check();
}

void RunFolder::check_recently() const {
  for (const auto& owner : owners_) owner->check_recently();
}

/// Takes ownership of the folders. Every location is tried before anything is computed.
void RunFolder::take() {
  const std::string& path = config_.snapshot.path;
  owners_.push_back(std::make_unique<FolderOwner>("log.dir", config_.log.dir));
  const std::optional<std::string> folder = local_path(path);
  if (path.empty() || (folder && place_of(*folder) == place_of(config_.log.dir))) return;
  // An earlier start of the run holds both folders. The wait for the first folder counts for the second.
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

/// Returns the newest valid snapshot of a step below `step`. Throws UserError if all of them are damaged.
std::optional<StoredSnapshot> RunFolder::newest_below(int64_t step) const {
  const SnapshotConfig& snapshot = config_.snapshot;
  std::string damage;
  auto found = SnapshotStore(snapshot.path, snapshot.keep)
                   .newest(
                       [&](const std::string& problem) {
                         log_warning(concat(problem, "; trying an older snapshot"));
                         damage = problem;
                       },
                       step);
  // Starting over would overwrite data that the user may still want to save.
  require(found || damage.empty(), "snapshot.path: no valid snapshot is left in ", snapshot.path, ": ",
          damage, "; --fresh moves it away and starts from scratch");
  return found;
}

void RunFolder::find() {
  const SnapshotConfig& snapshot = config_.snapshot;
  if (snapshot.path.empty()) return;
  snapshot_ = newest_below(std::numeric_limits<int64_t>::max());
  require(snapshot_ || snapshot.resume != "required",
          "snapshot.resume = required, but there is no snapshot in ", snapshot.path);
  if (snapshot_) in_snapshots_ = run_of(snapshot_->state(), config_, artifacts_);
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
  // The newest snapshot is more reliable than the metrics. Their last line may be lost, or may survive the
  // last snapshot. A snapshot may also be the end of a run that was extended afterwards.
  if (in_log_folder_ && in_snapshots_ && is_one_run) {
    in_snapshots_->is_finished &= in_log_folder_->step <= in_snapshots_->step;
    in_log_folder_->is_finished &= in_snapshots_->is_finished;
  }
  // A snapshot stores the count of validations. So the resumed run decides itself whether its patience is
  // over.
  const bool has_snapshot = in_snapshots_ && is_one_run;
  const bool is_short = in_log_folder_ && in_log_folder_->step < config_.train.steps &&
                        (has_snapshot || !has_run_out_of_patience(*in_log_folder_, config_));
  // Without a snapshot a finished run cannot get more steps.
  if (is_short && in_log_folder_->is_finished && !has_snapshot)
    in_log_folder_->differences.push_back(
        concat("train.steps = ", in_log_folder_->step, " there, ", config_.train.steps, " here"));
  const bool may_move = config_.snapshot.resume == "auto" && !is_restart;
  if (in_snapshots_ && must_move(*in_snapshots_, path, may_move && is_one_run)) return move_aside(true, true);
  if (in_log_folder_ && must_move(*in_log_folder_, config_.log.dir, may_move)) return move_aside(true, false);
  if (!in_log_folder_) return;
  const bool is_over = in_log_folder_->is_finished && !is_short;
  if (is_over) finished_run_ = in_log_folder_;
  if (!is_over && !has_snapshot) require_same_snapshot_path();
}

/// Returns false if the run has the same meaning. Throws UserError if the meaning differs and the run has to
/// stay.
bool RunFolder::must_move(const FoundRun& run, const std::string& place, bool may_move) const {
  if (run.differences.empty()) return false;
  const bool is_elsewhere = place == config_.snapshot.path && !snapshots_are_inside();
  const std::string key = is_elsewhere ? "snapshot.path" : "log.dir";
  const std::string moved = free_name(plain(is_elsewhere ? place : config_.log.dir));
  const std::string anew =
      local_path(place) ? concat("--fresh moves it to ", moved, " and starts from scratch; ") : "";
  require(run.is_finished && may_move, place, " holds ", run.is_finished ? "a run" : "an unfinished run",
          " with other settings, at step ", run.step, ": ", joined(run.differences, "; "),
          ". To resume it, use its values; ", anew, "another ", key, " leaves it unchanged");
  return true;
}

/// Throws UserError if an unfinished run keeps its snapshots elsewhere. A start without them would cut its
/// metrics.
void RunFolder::require_same_snapshot_path() const {
  const std::string& theirs = in_log_folder_->snapshot_path;
  require(theirs.empty() || theirs == config_.snapshot.path, config_.log.dir,
          " holds an unfinished run, at step ", in_log_folder_->step, ", that keeps its snapshots in ",
          theirs, ": snapshot.path=", theirs, " resumes it; --fresh starts from scratch");
}

void RunFolder::move_aside(bool log_folder, bool snapshots) {
  const bool is_inside = snapshots_are_inside();
  const std::string& path = config_.snapshot.path;
  const std::optional<std::string> folder = local_path(path);
  // A bucket cannot rename, so the user has to decide.
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
}

void RunFolder::log_opening() const {
  if (finished_run_) return;
  const std::string how_to_start_anew = restart_count() > 0 ? "" : "; --fresh starts from scratch";
  if (snapshot_)
    log_info(concat("resuming after step ", snapshot_->state().step, " from ", config_.snapshot.path,
                    how_to_start_anew));
  else if (in_log_folder_)
    log_info(concat("the run in ", config_.log.dir, " has no snapshot: it starts again from the first step"));
}

std::string hash_lines(const Artifacts& artifacts) {
  std::string lines;
  for (const auto& [name, artifact] : artifacts)
    lines += concat(name, " = ", hash_text(hash_of(artifact)), "\n");
  return lines;
}

void write_fingerprint(const Config& config, const Artifacts& artifacts) {
  try {
    write_file(settings_path(config), to_ini(config));
    write_file(data_path(config), hash_lines(artifacts));
  } catch (const Error& problem) {
    log_error(concat(problem.what(), "; training continues"));
  }
}

std::optional<FoundRun> find_run(const Config& config, const Artifacts& artifacts) {
  const MetricsEnd end = read_metrics_end(config.log.dir + "/metrics.jsonl");
  if (end.step == 0) return std::nullopt;
  FoundRun run{.is_finished = !end.parameters_hash.empty(),
               .step = end.step,
               .parameters_hash = end.parameters_hash,
               .patience = end.patience};
  try {
    const Config& settings = run.settings =
        config_of_earlier_run(read_config_file(settings_path(config)), settings_path(config));
    run.differences = differences_of(settings, run.step, config);
    // A folder that was moved still contains its snapshots.
    run.snapshot_path = settings.snapshot.path == default_snapshot_path(settings)
                            ? default_snapshot_path(config)
                            : settings.snapshot.path;
    std::error_code ignored;
    const bool has_hash = std::filesystem::exists(data_path(config), ignored);
    if (has_hash && read_config_file(data_path(config)) != hash_lines(artifacts))
      run.differences.emplace_back("data.dataset: the data differ");
  } catch (const UserError& problem) {
    run.differences = {concat("its settings cannot be read: ", problem.what())};
  }
  return run;
}

FoundRun run_of(const Snapshot& snapshot, const Config& config, const Artifacts& artifacts) {
  FoundRun run{.settings = config_of_earlier_run(snapshot.configuration, "the snapshot's configuration"),
               .is_finished = snapshot.is_finished,
               .step = snapshot.step,
               .snapshot_path = config.snapshot.path};
  run.differences = differences_of(run.settings, run.step, config);
  for (const auto& [name, artifact] : artifacts)
    if (!snapshot.artifacts.contains(name) || snapshot.artifacts.at(name) != artifact)
      run.differences.push_back(name.find('.') != std::string::npos  // a key
                                    ? concat(name, ": its content differs")
                                    : concat("data.dataset: the ", name, " differs"));
  return run;
}

std::string settings_to_go_on_with(const Config& config) {
  if (config.snapshot.resume == "never" && restart_count() == 0) return "";
  const MetricsEnd end = read_metrics_end(config.log.dir + "/metrics.jsonl");
  int64_t step = end.step;
  bool is_finished = !end.parameters_hash.empty();
  std::string text;
  try {
    if (step > 0) text = read_config_file(settings_path(config));
  } catch (const UserError&) {
    return "";  // find_run() reports the problem
  }
  if (step == 0 && !config.snapshot.path.empty())
    if (const auto found =
            SnapshotStore(config.snapshot.path, 1)
                .newest([](const std::string&) {}, std::numeric_limits<int64_t>::max(), false)) {
      text = found->state().configuration;
      step = found->state().step;
      is_finished = found->state().is_finished;
    }
  if (text.empty()) return "";
  const Config there = config_of_earlier_run(text, "the earlier run");
  Config here = config;
  adopt_unset(here, there);
  const bool is_other = !differences_of(there, step, here).empty() || here.data.dataset != there.data.dataset;
  return is_finished && is_other ? "" : text;
}

std::optional<StoredSnapshot> snapshot_to_go_on_from(const Config& config) {
  const bool is_restart = restart_count() > 0;
  const bool begins = config.snapshot.resume == "never" && !is_restart;
  if (begins || config.snapshot.path.empty()) return std::nullopt;
  // RunFolder logs the damaged ones.
  auto found = SnapshotStore(config.snapshot.path, config.snapshot.keep).newest([](const std::string&) {});
  return found && (is_restart || !found->state().is_finished) ? std::move(found) : std::nullopt;
}

}  // namespace lockstep
