// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/communicator.h"

namespace lockstep {

/// A rank of a group in a dry run (core/dry_run.h), whose other ranks do not exist: each is taken to bring
/// what this one brings, so nobody waits and no message leaves. Collectives check their arguments; a gather
/// copies this rank's bytes for every rank, everything else leaves memory as it is. What is gathered is read,
/// so it has to be the host's own and no tensor of the dry run.
class DryCommunicator final : public Communicator {
 public:
  /// Rank `rank` of `size`, `ranks_of_host` of which are on its host. Throws Error where these do not fit.
  DryCommunicator(int rank, int size, int ranks_of_host);

  /// This rank's block, which stands for those of all; counted by the dry run under the label of the scope.
  /// Throws Error where there is no dry run.
  std::shared_ptr<SharedMemory> share(int64_t bytes, bool is_common = false) override;
  /// Of this rank's blocks so far.
  int64_t shared_bytes() const { return shared_bytes_; }

 protected:
  void do_barrier() override {}
  void do_broadcast(std::byte* data, int64_t bytes, int root) override;
  void do_all_gather(const std::byte* mine, int64_t bytes, std::byte* all) override;
  void do_exchange(std::span<const Message> sends, std::span<const Message> receives) override;
  void do_native_all_reduce(float* values, int64_t count) override;

 private:
  int ranks_of_host_;
  int64_t shared_bytes_ = 0;
};

}  // namespace lockstep
