// SPDX-License-Identifier: Apache-2.0
#include "lockstep/snapshot/snapshot_writer.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/memory.h"
#include "lockstep/kernels/spans.h"

namespace lockstep {
namespace {

constexpr double forever = std::numeric_limits<double>::infinity();

}  // namespace

SnapshotWriter::SnapshotWriter(const World& world, const PlacedTensors& tensors, Options options)
    : world_(world),
      tensors_(tensors),
      files_(files_of(tensors, options.layout)),
      before_end_(std::move(options.before_end)),
      on_result_(std::move(options.on_result)),
      best_loss_(options.best_loss) {
  const int ranks = world.size();
  expect(std::ssize(tensors.buffers().front().held) == ranks, "the tensors are held by ",
         tensors.buffers().front().held.size(), " ranks, not ", ranks);
  // A rank that writes nothing needs no credentials.
  if (options.is_shared || world.is_first())
    store_ = std::make_unique<SnapshotStore>(options.path, options.keep, std::move(options.guard));
  if (!options.is_shared || ranks == 1)
    deal_ = deal_to_first(files_, ranks);
  else if (store_->part_bytes(0) == 1)
    deal_ = deal_to_holders(tensors, files_);
  else
    deal_ = deal_parts(files_, ranks, [this](int64_t bytes) { return store_->part_bytes(bytes); });
  const auto writes = [](const RankShare& share) {
    return std::ranges::any_of(share.bytes, [](const Range& range) { return range.size() > 0; });
  };
  first_writes_alone_ = std::none_of(deal_.begin() + 1, deal_.end(), writes);
}

void SnapshotWriter::save(const Snapshot& snapshot, Purpose purpose, double patience_seconds) {
  const Clock::time_point begin = Clock::now();
  for (bool is_over = false; !is_idle() && !is_over;) {
    meet(std::max(0.0, patience_seconds - seconds_since(begin)));
    // Rank 0's clock decides, so that all ranks skip the snapshot.
    is_over = world_.communicator().broadcast_value(seconds_since(begin) >= patience_seconds, 0);
  }
  if (!is_idle()) {
    if (world_.is_first())
      log_error(concat("skipped the snapshot of step ", snapshot.step, ": that of step ", snapshot_.step,
                       " is still being written; training continues"));
    return;
  }
  copy();
  snapshot_ = snapshot;
  kinds_.clear();
  if (purpose.step) kinds_.push_back(SnapshotStore::Kind::step);
  // The last kind is written first, so no snapshot to resume from names a best loss without its snapshot.
  if (purpose.best) kinds_.push_back(SnapshotStore::Kind::best);
  best_loss_before_ = best_loss_;
  if (purpose.best) best_loss_ = snapshot.best_validation_loss;
  began_ = Clock::now();
  start_next();
}

void SnapshotWriter::amend(const Snapshot& snapshot) {
  expect(is_idle() && newest_ && snapshot.step == newest_->step, "the newest snapshot is not of step ",
         snapshot.step);
  if (snapshot == *newest_) return;
  snapshot_ = snapshot;
  kinds_ = {SnapshotStore::Kind::step};
  start_on_first(Phase::end, [this] {
    if (before_end_) before_end_();
    store_->amend(snapshot_);
    return std::string();
  });
}

/// Copies this rank's part into the memory of the last copy. Fresh memory would cost as much as the copy.
void SnapshotWriter::copy() {
  const MemoryScope scope("snapshot");
  const SpanRange span("copy", SpanRow::snapshots);
  const int64_t bytes = bytes_of(files_, deal_[static_cast<size_t>(world_.rank())]);
  if (!copy_ && bytes > 0) copy_ = allocate(bytes, cpu_stream());
  collect(world_, tensors_, files_, deal_, copy_.get());
}

/// Starts the work of this rank, if any, in a thread. If no thread can be started, the work counts as failed.
void SnapshotWriter::start(Phase phase, const std::function<std::string()>& work) {
  phase_ = phase;
  progress_ = work ? Progress::busy : Progress::done;
  result_.clear();
  if (!work) return;
  try {
    work_ = std::async(std::launch::async, [work] {
      const SpanRange span("write", SpanRow::snapshots);
      return work();
    });
  } catch (const std::exception& problem) {
    result_ = problem.what();
    progress_ = Progress::failed;
  }
}

void SnapshotWriter::start_on_first(Phase phase, const std::function<std::string()>& work) {
  start(phase, world_.is_first() ? work : nullptr);
}

void SnapshotWriter::start_next() {
  if (kinds_.empty()) {
    phase_ = Phase::idle;
    return;
  }
  if (first_writes_alone_)
    start_on_first(Phase::end, [this] { return write_alone(); });
  else
    start_on_first(Phase::begin, [this] { return store_->begin(kinds_.back(), snapshot_.step, files_); });
}

/// Writes this rank's part of the snapshot that begin() started.
std::string SnapshotWriter::write_part() {
  return store_->write(kinds_.back(), snapshot_.step, begun_, files_,
                       deal_[static_cast<size_t>(world_.rank())], copy_.get());
}

std::string SnapshotWriter::write_alone() {
  begun_ = store_->begin(kinds_.back(), snapshot_.step, files_);
  std::string written;
  try {
    written = write_part();
  } catch (...) {
    drop();
    throw;
  }
  return end({written});
}

std::string SnapshotWriter::end(const std::vector<std::string>& written) {
  Snapshot snapshot = snapshot_;
  snapshot.best_validation_loss = best_loss_;
  try {
    if (before_end_) before_end_();
    store_->end(kinds_.back(), snapshot, begun_, files_, written);
  } catch (...) {
    drop();
    throw;
  }
  heartbeat().snapshot_seconds.store(seconds_since(began_));
  if (kinds_.back() == SnapshotStore::Kind::step) heartbeat().snapshot_step.store(snapshot_.step);
  publish("");
  return "";
}

/// Passes the outcome of the current snapshot to its listener.
void SnapshotWriter::publish(const std::string& problem) const {
  if (on_result_)
    on_result_({.step = snapshot_.step,
                .is_best = kinds_.back() == SnapshotStore::Kind::best,
                .seconds = seconds_since(began_),
                .problem = problem});
}

std::string SnapshotWriter::drop() {
  store_->drop(kinds_.back(), snapshot_.step, begun_);
  return "";
}

/// Updates the progress of this rank, after waiting at most `patience_seconds` for its work.
void SnapshotWriter::look(double patience_seconds) {
  if (progress_ != Progress::busy) return;
  if (patience_seconds == forever)
    work_.wait();
  else if (work_.wait_for(std::chrono::duration<double>(patience_seconds)) != std::future_status::ready)
    return;
  try {
    result_ = work_.get();
    progress_ = Progress::done;
  } catch (const std::exception& problem) {
    result_ = problem.what();
    progress_ = Progress::failed;
  }
}

/// Exchanges the progress of all ranks. Advances if all have done their part; gives up if one failed.
void SnapshotWriter::meet(double patience_seconds) {
  if (is_idle()) return;
  look(patience_seconds);
  const std::vector<Progress> all = world_.communicator().all_gather_value(progress_);
  if (std::ranges::count(all, Progress::busy) > 0) return;
  std::ranges::count(all, Progress::failed) > 0 ? give_up() : advance();
}

void SnapshotWriter::advance() {
  Communicator& communicator = world_.communicator();
  if (phase_ == Phase::begin) {
    begun_ = communicator.broadcast_text(result_, 0);
    start(Phase::write, [this] { return write_part(); });
  } else if (phase_ == Phase::write) {
    start_on_first(Phase::end,
                   [this, written = communicator.all_gather_text(result_)] { return end(written); });
  } else {
    close(phase_ == Phase::end);
  }
}

/// Logs the first failure on rank 0. If it happened while ranks wrote their parts, rank 0 deletes them.
void SnapshotWriter::give_up() {
  const std::vector<std::string> problems =
      world_.communicator().all_gather_text(progress_ == Progress::failed ? result_ : "");
  for (size_t rank = 0; world_.is_first() && rank < problems.size(); ++rank) {
    if (problems[rank].empty()) continue;
    log_error(concat(rank > 0 ? concat("rank ", rank, ": ") : "", problems[rank], "; training continues"));
    publish(problems[rank]);
    break;
  }
  if (phase_ != Phase::write) return close(false);
  start_on_first(Phase::drop, [this] { return drop(); });
}

void SnapshotWriter::close(bool is_kept) {
  const SnapshotStore::Kind kind = kinds_.back();
  kinds_.pop_back();
  if (!is_kept && kind == SnapshotStore::Kind::best) best_loss_ = best_loss_before_;
  if (is_kept && kind == SnapshotStore::Kind::step) {
    newest_ = snapshot_;
    newest_->best_validation_loss = best_loss_;
  }
  start_next();
}

void SnapshotWriter::go_on() { meet(0.0); }

int64_t SnapshotWriter::finish() {
  const NoTimeout no_timeout(world_.communicator());
  while (!is_idle()) meet(forever);
  return newest_ ? newest_->step : -1;
}

}  // namespace lockstep
