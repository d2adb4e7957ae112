// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace lockstep {

/// Ranks that are threads of one process; with one rank, the world of a program started alone.
class LocalCommunicator : public Communicator {
 public:
  struct Group;

  /// Rank `rank` of a group made by make_group(size).
  LocalCommunicator(std::shared_ptr<Group> group, int rank);
  ~LocalCommunicator() override;

  static std::shared_ptr<Group> make_group(int size);
  static std::unique_ptr<LocalCommunicator> alone();

  std::shared_ptr<SharedMemory> share(int64_t bytes, bool is_common = false) override;

 protected:
  void do_barrier() override;
  void do_broadcast(std::byte* data, int64_t bytes, int root) override;
  void do_all_gather(const std::byte* mine, int64_t bytes, std::byte* all) override;
  void do_exchange(std::span<const Message> sends, std::span<const Message> receives) override;
  void do_native_all_reduce(float* values, int64_t count) override;

 private:
  /// Publishes what this rank brings, runs `copy` when all have, and returns when all have copied. Throws
  /// Error if the ranks came to different operations.
  void together(const std::string& operation, const void* data, std::span<const Message> sends,
                const std::function<void()>& copy);

  std::shared_ptr<Group> group_;
};

/// Runs body(communicator) on `ranks` threads and rethrows the exception of the rank that failed first; the
/// others are released from all their waits. The body may share its communicator by shared_from_this().
void run_ranks(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace lockstep
