// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep {

/// The ranks of this run and the position of this process among them.
class World {
 public:
  /// Returns the ranks of the job if mpirun or srun started this process, else this process alone. Throws
  /// UserError if a launcher started several processes without MPI. Only the first process reports it.
  static World from_environment();
  static World alone();
  /// Makes the world of a rank in an existing group.
  explicit World(std::shared_ptr<Communicator> communicator);

  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  bool is_first() const { return rank() == 0; }
  /// Returns true for one rank of each process. Ranks that are threads share a process and its log.
  bool is_first_in_process() const;
  Communicator& communicator() const { return *communicator_; }
  const std::shared_ptr<Communicator>& shared_communicator() const { return communicator_; }

  /// Returns the GPU of this rank, as its process numbers them. Each rank of a host gets one of the GPUs that
  /// the launcher lets it see, in rank order. All ranks call it. Throws UserError if there are none, or too
  /// few and LOCKSTEP_SHARE_GPU is not 1.
  int gpu() const;

  /// Returns this rank's share of the cores of its host, at least 1.
  int share_of_cores() const;
  /// Returns true if ranks with this many threads leave a core free for communication.
  bool has_spare_core(int threads) const;

 private:
  std::shared_ptr<Communicator> communicator_;
  int local_rank_ = 0;
  int local_size_ = 1;
  int ranks_on_my_cores_ = 1;
};

namespace detail {

/// Returns how many ranks of this host may run on the same cores as this one, itself included. It is 1 if the
/// launcher has bound each rank to cores of its own, else all of them. All ranks call it.
int count_ranks_on_my_cores(Communicator& communicator);

/// Returns whether this process reports for all processes of its launcher: it is the first of them, or alone.
/// Works before MPI is initialised.
bool is_launched_first();

/// Returns whether this process is the one to report a message. The first rank of a launch on this host that
/// claims a message keeps it until that rank ends. Needs no MPI and leaves nothing behind.
bool claim_message(const std::string& message);

/// Returns the GPU that each rank uses. `seen_by_rank` has a text for each rank, with one line for each GPU
/// that it sees. Ranks that see the same GPUs take turns. Throws UserError if `may_share` is not set and a
/// GPU would have two ranks.
std::vector<int> distribute_gpus(const std::vector<std::string>& seen_by_rank, bool may_share);

}  // namespace detail

/// Compares a text of "key = value" lines over all ranks. A difference is a UserError that names the first
/// differing line and both ranks' values. `what` names the text.
void require_equal_on_all_ranks(Communicator& communicator, const std::string& what,
                                const std::string& lines);

/// Runs `body` on rank 0 while the others wait without a deadline. A UserError or a StoppedBeforeStart that
/// it throws is thrown on all ranks.
void on_first_rank(const World& world, const std::function<void()>& body);

/// A failure of a program: its message and the exit code.
struct Failure {
  std::string message;
  int code = 1;
};

/// Reports a failure at once and ends all ranks five seconds later. Within that time the caller may clean up
/// and end the program itself. Call it before something that may wait for ever, such as storage that hangs.
/// Later failures are consequences and are not reported. Does nothing outside of run_program().
void report_and_end_soon(const Failure& failure);

/// Runs a part of a program. If it throws, calls report_and_end_soon() before the exception leaves, because
/// objects of the caller may wait for storage when they are destroyed.
int report_first(const std::function<int()>& body);

/// Runs a program and returns the exit code, which `body` returns. An exception is reported on stderr, with
/// its rank. It then ends all ranks, but a supervised rank ends only itself. The code is 2 for UserError and
/// 1 for any other exception. If ranks of a host fail for the same reason, one of them reports it. Several
/// processes without MPI are refused first.
int run_program(const std::function<int()>& body);

/// Runs a program of one process, like run_program(). It is a UserError if a launcher started several.
int run_alone(const std::function<int()>& body);

/// Runs a program of several ranks, like run_program(). Started by mpirun or srun, it runs `body` on this
/// process's rank. Started by hand, it runs `body` on `ranks` threads of this process (0: one per core).
/// Returns the first rank's exit code that is not 0. It is a UserError if a launcher started another number
/// of ranks than requested.
int launch_ranks(int ranks, const std::function<int(const World&)>& body);

}  // namespace lockstep
