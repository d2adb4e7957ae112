// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/communicator.h"

namespace lockstep {

/// A rank of a group in a dry run (core/dry_run.h). The other ranks do not exist. Each is assumed to provide
/// the same data as this one, so no call waits or sends. Collectives check their arguments. A gather copies
/// this rank's bytes for every rank; other collectives leave memory unchanged. Gathered bytes are read, so
/// they must be real host memory instead of a tensor of the dry run.
class DryCommunicator final : public Communicator {
 public:
  /// Makes rank `rank` of `size`, with `ranks_of_host` ranks on its host. Throws Error if the numbers do not
  /// fit.
  DryCommunicator(int rank, int size, int ranks_of_host);

  /// Returns this rank's block, which stands for the blocks of all ranks. The dry run counts it under the
  /// label of the scope. Throws Error outside a dry run.
  std::shared_ptr<SharedMemory> share(int64_t bytes, bool is_common = false) override;
  /// Returns the bytes of this rank's blocks so far.
  int64_t shared_bytes() const { return shared_bytes_; }

 protected:
  void do_barrier() override {}
  void do_broadcast(std::byte* data, int64_t bytes, int root) override;
  void do_all_gather(const std::byte* mine, int64_t bytes, std::byte* all) override;
  void do_exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives) override;
  void do_native_all_reduce(float* values, int64_t count) override;

 private:
  int ranks_of_host_;
  int64_t shared_bytes_ = 0;
};

}  // namespace lockstep
