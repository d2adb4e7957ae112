// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// Which replicas a rank runs; the bits do not depend on it.
enum class Execution {
  ranges,  ///< balanced contiguous ranges: one exchange a step, whole nodes of the tree wait on each rank
  interleaved,  ///< of all micro-batches in order, rank r runs r, r + N, ...: an exchange a round, nodes wait
                ///< on the owners of their elements
};

const char* name(Execution execution);

/// A part of a replica's batch, which one forward and one backward see.
struct MicroBatch {
  int replica = 0;
  int index = 0;          ///< of `accumulate`, added left to right
  bool is_empty = false;  ///< run so that this rank takes part in what all do; it does not count
  bool operator==(const MicroBatch&) const = default;
};

/// What `rank` of `ranks` executes, in order, in equally many rounds on every rank where they are
/// interleaved. Throws UserError if there are fewer replicas than ranks.
std::vector<MicroBatch> micro_batches_of(int replicas, int accumulate, int ranks, int rank,
                                         Execution execution);

/// What is added to what, and by whom, in one step of one rank: a value, made from four numbers and a
/// policy.
///
/// Node (l, i) of the tree over V replicas covers replicas [i * 2^l, (i + 1) * 2^l) below V. Its value is
/// left + right in fp32; where the right child covers nothing, the left passes through. A leaf is the sum of
/// a replica's micro-batches, from left to right.
///
/// In ranges, a rank's replicas write their gradients into slots, each as large as the model, which are a
/// binary counter: a replica writes the slot above those that hold something, and is added to them as far as
/// the tree allows. Interleaved, there is one slot, for one micro-batch. In each round every rank then hands
/// over its slots; the owner of an element folds all ranks' into a counter of its own, and the last round's
/// fold gives the sum over all replicas.
struct ReductionPlan {
  struct Replica {
    int index = 0;
    int slot = 0;       ///< that its backward writes
    int additions = 0;  ///< after it: slot - 1 += slot, and so on downwards
  };
  struct Fold {
    static constexpr int mean = -1;
    std::vector<int> program;  ///< of kernels/fold.h, over the round's inputs
    int partial_sum = mean;    ///< of the counter, where the value is kept; `mean`: it ends the step
  };
  /// The inputs of a round's folds are the levels of the counter, then the slots of rank 0, of rank 1, ...
  struct Round {
    std::vector<Replica> replicas;   ///< of this rank, in order
    int partial_sums = 0;            ///< of the counter that hold something when it begins
    std::vector<int> slots_of_rank;  ///< how many slots each rank hands over
    std::vector<Fold> folds;         ///< by every owner, in order
  };

  /// `merges_last`: a rank makes the additions after a round's last replica itself; else they are part of the
  /// folds, which saves a pass where owners read the slots of others in place.
  ReductionPlan(int total_replicas, int accumulate, int ranks, int rank, Execution execution,
                bool merges_last);

  /// Of this rank, in order.
  std::vector<MicroBatch> micro_batches() const {
    return micro_batches_of(total_replicas, accumulate, ranks, rank, execution);
  }
  /// For people: a line for each replica and each fold.
  std::string to_text() const;

  int total_replicas;
  int accumulate;
  int ranks;
  int rank;
  Execution execution;
  bool merges_last;
  int slots = 1;         ///< the most that any rank uses
  int partial_sums = 0;  ///< of the counter
  std::vector<Round> rounds;
};

}  // namespace lockstep
