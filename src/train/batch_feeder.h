// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "core/event.h"
#include "core/stream.h"
#include "data/loader.h"

namespace lockstep {

/// Brings a step's batches to where kernels read them. On a GPU: through pinned memory and a queue of its
/// own, while the steps before still run, and then to the same addresses every time, as a recorded step needs
/// them. On the CPU a batch is already there.
class BatchFeeder {
 public:
  /// `stream` is the one that computes; no batch has more than `most_samples`.
  BatchFeeder(const Stream& stream, int64_t most_samples);

  /// The batches, in the order of `stream`. They hold until the next call.
  std::vector<Batch> load(const std::vector<Batch>& batches);

 private:
  /// One of two places on the way, so that a step can arrive while another is being read.
  struct Stage {
    std::shared_ptr<std::byte> pinned;
    std::shared_ptr<std::byte> on_device;
    Event arrived;
    Event taken;
  };

  void reserve(const std::vector<Batch>& batches);

  Stream compute_;
  Stream copies_;
  int64_t most_samples_;
  int64_t bytes_ = 0;  ///< of one step's batches
  std::array<Stage, 2> stages_;
  std::shared_ptr<Storage> fixed_;
  int64_t loads_ = 0;
};

}  // namespace lockstep
