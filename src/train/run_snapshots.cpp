// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/run_snapshots.h"

#include <cmath>
#include <cstdint>
#include <filesystem>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"
#include "lockstep/events/events.h"
#include "lockstep/snapshot/snapshot_store.h"
#include "lockstep/store/object_store.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Returns the bytes of a folder's snapshots, whose room later ones can take. Skips files deleted meanwhile.
int64_t bytes_of_snapshots(const std::string& folder) {
  std::error_code ignored;
  uintmax_t bytes = 0;
  for (const std::string& name : SnapshotStore(folder, 1).names())
    for (fs::directory_iterator file(fs::path(folder) / name, ignored), end; file != end;
         file.increment(ignored)) {
      const uintmax_t size = file->file_size(ignored);
      if (size != static_cast<uintmax_t>(-1)) bytes += size;
    }
  return static_cast<int64_t>(bytes);
}

/// Throws UserError if a disk has no room for `bytes`. Snapshots already in the folder count as room.
void require_room(const std::string& folder, double bytes) {
  std::error_code problem;
  const fs::space_info space = fs::space(folder, problem);
  if (problem) return;  // the free space is unknown, so writing is tried
  const auto available = static_cast<double>(space.available);
  if (available >= bytes - static_cast<double>(bytes_of_snapshots(folder))) return;
  const std::string shortage =
      concat("snapshot.path: the snapshots need ", bytes_text(bytes), " in ", folder, ", but only ",
             bytes_text(available),
             " are free: make room, choose another snapshot.path, lower snapshot.keep, or disable snapshots "
             "(snapshot.path = none)");
  // A restart continues: the disk may get room before the next snapshot.
  require(restart_count() > 0, shortage);
  log_warning(shortage);
}

/// Appends the outcome of a snapshot to the events of a run.
void record(const std::string& folder, const SnapshotWriter::Result& result) {
  append_event(folder, "snapshot", result.step,
               {{"kind", result.is_best ? "best" : "newest"},
                {"seconds", fixed_text(result.seconds, 3)},
                {"problem", result.problem}});
}

}  // namespace

RunSnapshots::RunSnapshots(const Job& job, const World& world, const RunFolder& folder,
                           const PlacedTensors& tensors, const ModelLayout& layout,
                           std::function<void()> sync_metrics)
    : job_(job), world_(world) {
  const std::string place = job_.snapshot_place();
  if (folder.snapshot()) best_loss_ = folder.snapshot()->best_validation_loss;
  if (!place.empty())
    writer_ = std::make_unique<SnapshotWriter>(
        world, tensors,
        SnapshotWriter::Options{.path = place,
                                .keep = job_.snapshots.keep,
                                .is_shared = folder.is_shared(),
                                .best_loss = best_loss_,
                                .guard = [&folder] { folder.check(); },
                                .before_end = std::move(sync_metrics),
                                .on_result = [&job](const auto& result) { record(job.log.dir, result); },
                                .layout = layout});
}

void RunSnapshots::describe(int64_t snapshot_bytes, bool has_best) const {
  const std::string place = job_.snapshot_place();
  const int64_t keep = job_.snapshots.keep;
  if (place.empty())
    return log_info("snapshots: none, so the trained model is not kept (snapshot.path = none)");
  // The snapshots that are kept, the best one, and the one that is being written.
  const double count = static_cast<double>(keep) + 1 + (has_best ? 1 : 0);
  const double bytes = count * static_cast<double>(snapshot_bytes);
  if (const auto path = local_path(place)) require_room(*path, bytes);
  log_info(concat("snapshots: ", place, ", the newest", keep > 1 ? concat(" ", keep) : "",
                  has_best ? " and the best" : "", ", ", bytes_text(static_cast<double>(snapshot_bytes)),
                  " each, at most ", bytes_text(bytes)));
}

bool RunSnapshots::is_time() const {
  const double minutes = job_.snapshots.every_minutes;
  return writer_ && world_.is_first() && minutes > 0.0 && seconds_since(last_) >= minutes * 60.0;
}

bool RunSnapshots::is_due(int64_t step) const {
  const int64_t every = job_.snapshots.every_steps;
  return every > 0 && step % every == 0;
}

bool RunSnapshots::is_best(double validation_loss) {
  if (writer_) best_loss_ = writer_->best_loss();
  // A loss that is NaN is never the best.
  const bool best = std::isfinite(validation_loss) && (!best_loss_ || validation_loss < *best_loss_);
  if (best) best_loss_ = validation_loss;
  return best;
}

bool RunSnapshots::save_last(Snapshot snapshot) {
  if (!writer_) return false;
  const int64_t step = snapshot.step;
  snapshot.best_validation_loss = best_loss_;
  // After a request to stop lockrun allows a rank more time in this phase.
  report_progress("snapshot");
  if (writer_->finish() != step)
    save(std::move(snapshot), {.step = true});
  else
    writer_->amend(snapshot);
  const bool is_saved = writer_->finish() == step;
  report_progress("ending");
  return is_saved;
}

void RunSnapshots::save(Snapshot snapshot, SnapshotWriter::Purpose purpose) {
  if (purpose.step) {
    last_ = Clock::now();
    is_wanted_ = false;
  }
  report_progress("snapshot");
  has_begun_any_ |= purpose.step;
  snapshot.best_validation_loss = best_loss_;
  // Ranks wait here for the snapshot before this one, for at most half of dist.timeout_s.
  writer_->save(snapshot, purpose, job_.dist.timeout_s / 2);
}

}  // namespace lockstep
