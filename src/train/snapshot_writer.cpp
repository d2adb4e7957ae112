// SPDX-License-Identifier: Apache-2.0
#include "train/snapshot_writer.h"

#include <chrono>

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

SnapshotWriter::SnapshotWriter(const std::string& path, int64_t keep)
    : store_(path, keep), thread_([this] { serve(); }) {}

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
  is_writing_ = true;
  changed_.notify_all();
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
    try {
      write(copy_, purpose_);
    } catch (const std::exception& problem) {
      log_error(concat(problem.what(), "; training goes on"));
    }
    lock.lock();
    is_writing_ = false;
    changed_.notify_all();
  }
}

void SnapshotWriter::write(const Snapshot& snapshot, Purpose purpose) {
  if (purpose.step) {
    store_.save(snapshot);
    newest_step_ = snapshot.step;
    heartbeat().snapshot_step.store(snapshot.step);
  }
  if (purpose.best) store_.save_best(snapshot);
}

}  // namespace lockstep
