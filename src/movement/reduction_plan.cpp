// SPDX-License-Identifier: Apache-2.0
#include "lockstep/movement/reduction_plan.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/kernels/fold.h"

namespace lockstep {
namespace {

using Replica = ReductionPlan::Replica;
using Round = ReductionPlan::Round;

/// A node of the tree. Below the leaves, it is a replica of which some micro-batches have been added.
struct TreeNode {
  static constexpr int unfinished = -1;
  int level = 0;
  int index = 0;

  bool operator==(const TreeNode&) const = default;
};

/// A binary counter over tree nodes. It keeps the pushed nodes as the largest nodes that they complete.
struct TreeFold {
  int replicas;
  std::vector<TreeNode> pending = {};

  /// Pushes the node that follows all earlier ones. Returns the number of additions that this makes possible.
  int push(TreeNode node) {
    int additions = 0;
    while (node.level != TreeNode::unfinished) {
      const int64_t next_begin = (int64_t{node.index} + 1) << node.level;
      const bool is_root = node.index == 0 && next_begin >= replicas;
      if (is_root) break;
      if (node.index % 2 == 0) {
        if (next_begin < replicas) break;  // the right sibling is still to come
      } else {
        if (pending.empty() || !(pending.back() == TreeNode{node.level, node.index - 1})) break;
        pending.pop_back();
        ++additions;
      }
      node = {node.level + 1, node.index / 2};
    }
    pending.push_back(node);
    return additions;
  }
};

/// A rank's share of a round: the slots of its replicas, and the nodes that remain.
struct LocalRound {
  std::vector<Replica> replicas;
  std::vector<TreeNode> nodes;

  LocalRound(int total, const std::vector<MicroBatch>& replicas_of_rank, bool merges_last) {
    TreeFold fold{total};
    for (const MicroBatch& one : replicas_of_rank) {
      nodes = fold.pending;
      nodes.push_back({0, one.replica});
      replicas.push_back({one.replica, static_cast<int>(fold.pending.size()), fold.push({0, one.replica})});
    }
    if (merges_last) nodes = fold.pending;
  }
};

/// A builder of folds. It takes nodes in order and keeps the fold of each pending node.
class Folder {
 public:
  TreeFold fold;
  std::vector<ReductionPlan::Fold> pieces;

  /// Pushes the next node. `continues`: the input is added to the last node, which was unfinished.
  void push(TreeNode node, int input, bool continues = false) {
    pieces.push_back({.program = {input}});
    if (continues) fold.pending.pop_back();
    for (int additions = fold.push(node) + (continues ? 1 : 0); additions > 0; --additions) add_last();
  }

 private:
  void add_last() {
    const std::vector<int> right = pieces.back().program;
    pieces.pop_back();
    std::vector<int>& left = pieces.back().program;
    left.insert(left.end(), right.begin(), right.end());
    left.push_back(Fold::add);
  }
};

std::vector<MicroBatch> micro_batches_of(int replicas, int accumulate, int ranks, int rank,
                                         Execution execution) {
  require(replicas >= ranks, option_name("replicas"), " = ", replicas, " is fewer than the ", ranks,
          " ranks: start at most one rank per replica, or raise ", option_name("replicas"));
  std::vector<MicroBatch> mine;
  if (execution == Execution::ranges) {
    const auto bound = [&](int r) { return static_cast<int>(int64_t{replicas} * r / ranks); };
    for (int replica = bound(rank); replica < bound(rank + 1); ++replica)
      for (int part = 0; part < accumulate; ++part) mine.push_back({replica, part});
    return mine;
  }
  const int64_t all = int64_t{replicas} * accumulate;
  for (int64_t i = rank; i / ranks <= (all - 1) / ranks; i += ranks) {
    const bool is_empty = i >= all;  // repeats this rank's previous micro-batch
    const int64_t shown = is_empty ? i - ranks : i;
    mine.push_back({static_cast<int>(shown / accumulate), static_cast<int>(shown % accumulate), is_empty});
  }
  return mine;
}

}  // namespace

int rank_of(const MicroBatch& one, int total_replicas, int accumulate, int ranks, Execution execution) {
  if (execution == Execution::interleaved)
    return static_cast<int>((int64_t{one.replica} * accumulate + one.index) % ranks);
  // The highest r with total * r / ranks <= replica, in whole numbers.
  return static_cast<int>((int64_t{ranks} * (one.replica + 1) - 1) / total_replicas);
}

ReductionPlan::ReductionPlan(int total, int micro_batches, int of_ranks, int this_rank, Execution policy,
                             bool merges)
    : total_replicas(total),
      accumulate(micro_batches),
      ranks(of_ranks),
      rank(this_rank),
      execution(policy),
      merges_last(merges) {
  const bool is_range = execution == Execution::ranges;
  std::vector<std::vector<MicroBatch>> of_rank;
  for (int r = 0; r < ranks; ++r)
    of_rank.push_back(micro_batches_of(total, is_range ? 1 : micro_batches, ranks, r, execution));
  rounds.resize(is_range ? 1 : of_rank.front().size());
  std::vector<TreeNode> kept;  // nodes in the owners' partial sums
  for (size_t i = 0; i < rounds.size(); ++i) {
    Round& round = rounds[i];
    Folder folder{.fold = {total}, .pieces = {}};
    int inputs = 0;
    for (const TreeNode& node : kept) folder.push(node, inputs++);
    round.partial_sums = inputs;
    for (int r = 0; r < ranks; ++r) {
      const std::vector<MicroBatch>& its = of_rank[static_cast<size_t>(r)];
      if (!is_range) {
        if (r == rank) round.replicas.push_back({.index = its[i].replica});
        round.slots_of_rank.push_back(its[i].is_empty ? 0 : 1);
        if (its[i].is_empty) continue;
        const bool is_finished = its[i].index + 1 == micro_batches;
        folder.push({is_finished ? 0 : TreeNode::unfinished, its[i].replica}, inputs++, its[i].index > 0);
        continue;
      }
      const LocalRound local(total, its, merges_last);
      if (r == rank) round.replicas = local.replicas;
      for (const Replica& replica : local.replicas) slots = std::max(slots, replica.slot + 1);
      for (const TreeNode& node : local.nodes) folder.push(node, inputs++);
      round.slots_of_rank.push_back(static_cast<int>(local.nodes.size()));
    }
    kept = folder.fold.pending;
    const bool is_last = i + 1 == rounds.size();
    for (int level = 0; level < static_cast<int>(kept.size()); ++level) {
      ReductionPlan::Fold& piece = folder.pieces[static_cast<size_t>(level)];
      if (!is_last) piece.partial_sum = level;
      const bool is_there =
          !is_last && level < round.partial_sums && piece.program == std::vector<int>{level};
      if (!is_there) round.folds.push_back(piece);
    }
    if (!is_last) partial_sums = std::max(partial_sums, static_cast<int>(kept.size()));
  }
}

std::vector<MicroBatch> ReductionPlan::micro_batches() const {
  return micro_batches_of(total_replicas, accumulate, ranks, rank, execution);
}

}  // namespace lockstep
