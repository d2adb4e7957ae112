// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/movement/micro_batch.h"

namespace lockstep {

/// The assignment of replicas to ranks. The bits do not depend on it.
enum class Execution {
  ranges,  ///< balanced contiguous ranges; one exchange per step; whole nodes of the tree wait on each rank
  interleaved,  ///< rank r runs micro-batches r, r + N, ... of all; one exchange per round; nodes wait on the
                ///< owners of their elements
};

/// Returns the rank that executes a micro-batch, which is not empty.
int rank_of(const MicroBatch& one, int total_replicas, int accumulate, int ranks, Execution execution);

/// The additions of one step, as seen by one rank: their operands, their order and the ranks that make them.
/// A plain value, made from four numbers, a policy and `merges_last`.
///
/// Node (l, i) of the tree over V replicas covers replicas [i * 2^l, (i + 1) * 2^l) below V. Its value is
/// left + right in fp32. If the right child covers nothing, the left value passes through. A leaf is the sum
/// of a replica's micro-batches, from left to right.
///
/// Execution::ranges: a rank's replicas write slots, each as large as the model. Slots hold partial sums like
/// a binary counter. A replica writes the slot above those in use. It is then added to them as far as the
/// tree allows.
///
/// Execution::interleaved: there is one slot, for one micro-batch.
///
/// In each round every rank contributes its slots. The owner of an element folds the slots of all ranks into
/// its own partial sums. The last round's fold gives the sum over all replicas.
struct ReductionPlan {
  struct Replica {
    int index = 0;
    int slot = 0;       ///< the slot that its backward writes
    int additions = 0;  ///< number of additions after it: slot - 1 += slot, and so on downwards
  };
  struct Fold {
    static constexpr int mean = -1;
    std::vector<int> program;  ///< a program of kernels/fold.h, over the round's inputs
    int partial_sum = mean;    ///< index of the partial sum that keeps the value; `mean`: it ends the step
  };
  /// A round of a step. Inputs of its folds are the partial sums, then the slots of all ranks in rank order.
  struct Round {
    std::vector<Replica> replicas;   ///< replicas of this rank, in order
    int partial_sums = 0;            ///< number of partial sums that hold a value when it begins
    std::vector<int> slots_of_rank;  ///< [rank], the number of slots that each rank contributes
    std::vector<Fold> folds;         ///< made by every owner, in order
  };

  /// `merges_last`: a rank makes the additions after a round's last replica itself. Otherwise the folds make
  /// them. That saves a pass if owners read other ranks' slots in place. Throws UserError if there are fewer
  /// replicas than ranks.
  ReductionPlan(int total_replicas, int accumulate, int ranks, int rank, Execution execution,
                bool merges_last);

  /// Returns the micro-batches of this rank, in order. All ranks have equally many if they are interleaved.
  std::vector<MicroBatch> micro_batches() const;

  int total_replicas;
  int accumulate;
  int ranks;
  int rank;
  Execution execution;
  bool merges_last;
  int slots = 1;         ///< the most slots that any rank uses
  int partial_sums = 0;  ///< the most partial sums between two rounds
  std::vector<Round> rounds;
};

}  // namespace lockstep
