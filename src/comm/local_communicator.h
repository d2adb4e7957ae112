// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/shared_memory.h"

namespace lockstep {

/// A rank that is a thread of this process. A group of one rank is the world of a program started alone.
class LocalCommunicator : public Communicator {
 public:
  struct Group;

  /// Makes rank `rank` of a group from make_group(size).
  LocalCommunicator(std::shared_ptr<Group> group, int rank);
  ~LocalCommunicator() override;

  static std::shared_ptr<Group> make_group(int size);
  static std::unique_ptr<LocalCommunicator> alone();

  std::shared_ptr<SharedMemory> share(int64_t bytes, bool is_common = false) override;

 protected:
  void do_barrier() override;
  void do_broadcast(std::byte* data, int64_t bytes, int root) override;
  void do_all_gather(const std::byte* mine, int64_t bytes, std::byte* all) override;
  void do_exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives) override;
  void do_native_all_reduce(float* values, int64_t count) override;

  /// Publishes this rank's data, runs `copy` when all ranks have published, and returns when all have copied.
  /// Throws Error if the ranks called different operations. Throws on all ranks what the first copy throws.
  void together(const std::string& operation, const void* data, std::span<const SentMessage> sends,
                const std::function<void()>& copy);

 private:
  std::shared_ptr<Group> group_;
};

/// Runs body(communicator) on `ranks` threads and rethrows the exception of the rank that failed first. The
/// other ranks are released from all their waits. The body may share its communicator by shared_from_this().
void run_ranks(int ranks, const std::function<void(Communicator&)>& body);

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
