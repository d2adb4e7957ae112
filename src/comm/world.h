// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

/// The ranks of this run and this process's place among them.
class World {
 public:
  /// Started by mpirun or srun: the ranks of that job. Started by hand: alone. Throws UserError if a launcher
  /// started several processes without MPI; of those run_program() lets only the first say so.
  static World from_environment();
  static World alone();
  /// A rank of a group that exists already.
  explicit World(std::shared_ptr<Communicator> communicator);

  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  bool is_first() const { return rank() == 0; }
  Communicator& communicator() const { return *communicator_; }
  const std::shared_ptr<Communicator>& shared_communicator() const { return communicator_; }

  /// The GPU of this rank, as its process numbers them: one for each rank of a host, in their order, among
  /// those that the launcher lets it see. All ranks call it. Throws UserError if there are none, or too few
  /// and LOCKSTEP_SHARE_GPU is not 1.
  int gpu() const;

  /// This rank's share of the cores of its host, at least 1.
  int share_of_cores() const;
  /// True if ranks with this many threads leave a core over for communication.
  bool has_spare_core(int threads) const;

 private:
  std::shared_ptr<Communicator> communicator_;
  int local_rank_ = 0;
  int local_size_ = 1;
  int ranks_on_my_cores_ = 1;
};

/// Ranks of this host that may run on the same cores as this one, itself included: all of them, or one where
/// the launcher has bound each to cores of its own. All ranks call it.
int count_ranks_on_my_cores(Communicator& communicator);

/// Whether this process speaks for all that its launcher started, as is known before MPI is asked: it is the
/// first of them, or alone.
bool is_launched_first();

/// Whether this process is to say why it fails: of the ranks of one launch on this host that say the same,
/// the first is, until it ends. Needs no MPI, which may not have been started, and leaves nothing behind.
bool claim_message(const std::string& message);

/// Which of its GPUs each rank uses, from the GPUs that each sees, as texts that tell them apart: ranks that
/// see the same ones take turns. Throws UserError if `may_share` is not set and a GPU would have two ranks.
std::vector<int> distribute_gpus(const std::vector<std::string>& seen_by_rank, bool may_share);

/// Compares one text of "key = value" lines over all ranks. A difference is a UserError that names the first
/// differing line and both ranks' values; `what` says what is compared.
void require_equal_on_all_ranks(Communicator& communicator, const std::string& what,
                                const std::string& lines);

/// Runs `body` on rank 0 while the others wait. A UserError that it throws is thrown on all ranks.
void on_first_rank(const World& world, const std::function<void()>& body);

/// Runs a program: what `body` returns is the exit code. An exception is reported on stderr first, with its
/// rank, and then ends all ranks (a watched one only itself): UserError with code 2, anything else with 1. Of
/// the ranks of a host that fail for the same reason one says so. Several processes without MPI are refused
/// first.
int run_program(const std::function<int()>& body);

/// run_program() for a program that is no rank of anything: UserError if a launcher started several.
int run_alone(const std::function<int()>& body);

/// run_program() for a program of several ranks. Started by mpirun or srun, it runs `body` on this process's
/// rank; started by hand, on `ranks` threads of this process (0: one a core). Returns the exit code, of the
/// first rank that has one. UserError if a launcher started another number of ranks than was asked for.
int launch_ranks(int ranks, const std::function<int(const World&)>& body);

}  // namespace lockstep
