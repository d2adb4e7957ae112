// SPDX-License-Identifier: Apache-2.0
#include "snapshot/snapshot_writer.h"

#include <chrono>

#include "core/clock.h"
#include "core/error.h"
#include "core/heartbeat.h"
#include "core/log.h"
#include "core/memory.h"
#include "tensor/create.h"

namespace lockstep {
namespace {

/// Copies to host memory, into the tensors of the last copy where they fit: fresh memory costs as much as the
/// copy.
void copy_to_host(const std::vector<NamedTensor>& tensors, std::vector<NamedTensor>& copies) {
  copies.resize(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i].tensor;
    Tensor& place = copies[i].tensor;
    copies[i].name = tensors[i].name;
    if (!place || place.shape() != tensor.shape() || place.dtype() != tensor.dtype())
      place = empty(tensor.shape(), tensor.dtype(), cpu_stream());
    copy(tensor, place);
  }
}

}  // namespace

SnapshotWriter::SnapshotWriter(const std::string& path, int64_t keep, std::optional<double> best_loss,
                               std::function<void()> guard)
    : store_(path, keep, std::move(guard)), best_loss_(best_loss), thread_([this] { serve(); }) {}

SnapshotWriter::~SnapshotWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SnapshotWriter::save(const Snapshot& snapshot, Purpose purpose, double patience_seconds) {
  std::unique_lock lock(mutex_);
  const auto patience = std::chrono::duration<double>(patience_seconds);
  if (!changed_.wait_for(lock, patience, [this] { return !is_writing_; })) {
    log_error(concat("no snapshot of step ", snapshot.step, ": that of step ", copy_.step,
                     " is still being written; training goes on"));
    return;
  }
  const MemoryScope scope("snapshot");
  std::vector<NamedTensor> model = std::move(copy_.model), optimizer = std::move(copy_.optimizer);
  copy_to_host(snapshot.model, model);
  copy_to_host(snapshot.optimizer, optimizer);
  copy_ = snapshot;
  copy_.model = std::move(model);
  copy_.optimizer = std::move(optimizer);
  purpose_ = purpose;
  best_loss_before_ = best_loss_;
  if (purpose.best) best_loss_ = snapshot.best_validation_loss;
  is_writing_ = true;
  changed_.notify_all();
}

std::optional<double> SnapshotWriter::best_loss() const {
  const std::lock_guard lock(mutex_);
  return best_loss_;
}

int64_t SnapshotWriter::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !is_writing_; });
  return newest_step_;
}

void SnapshotWriter::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_writing_ || stopping_; });
    if (!is_writing_) return;
    lock.unlock();
    const Clock::time_point begin = Clock::now();
    // First, so that no snapshot to go on from tells of a best one that is not there.
    if (purpose_.best) write_best();
    if (purpose_.step) write_step();
    heartbeat().snapshot_seconds.store(seconds_since(begin));
    lock.lock();
    is_writing_ = false;
    changed_.notify_all();
  }
}

void SnapshotWriter::write_best() {
  try {
    store_.save_best(copy_);
  } catch (const std::exception& problem) {
    log_error(concat(problem.what(), "; training goes on"));
    const std::lock_guard lock(mutex_);
    best_loss_ = best_loss_before_;
  }
}

void SnapshotWriter::write_step() {
  try {
    copy_.best_validation_loss = best_loss();
    store_.save(copy_);
    newest_step_ = copy_.step;
    heartbeat().snapshot_step.store(copy_.step);
  } catch (const std::exception& problem) {
    log_error(concat(problem.what(), "; training goes on"));
  }
}

}  // namespace lockstep
