// SPDX-License-Identifier: Apache-2.0
#include "dist/reduction_plan.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/fold.h"

namespace lockstep {
namespace {

using Replica = ReductionPlan::Replica;
using Round = ReductionPlan::Round;

/// The replicas of a rank, round by round.
std::vector<std::vector<int>> rounds_of(int replicas, int ranks, int rank, Execution execution) {
  const std::vector<int> mine = replicas_of(replicas, ranks, rank, execution);
  if (execution == Execution::ranges) return {mine};
  std::vector<std::vector<int>> rounds(static_cast<size_t>((replicas + ranks - 1) / ranks));
  for (size_t k = 0; k < mine.size(); ++k) rounds[k].push_back(mine[k]);
  return rounds;
}

/// A rank's part of a round: where its replicas go, and the nodes that it is left with.
struct LocalPart {
  std::vector<Replica> replicas;
  std::vector<TreeNode> nodes;

  LocalPart(int total, const std::vector<int>& indices, bool merges_last) {
    TreeFold fold(total);
    for (const int index : indices) {
      nodes = fold.pending();
      nodes.push_back({0, index});
      replicas.push_back({index, static_cast<int>(fold.pending().size()), fold.push({0, index})});
    }
    if (merges_last) nodes = fold.pending();
  }
};

/// Pushes nodes and keeps, for each pending one, the fold that makes it.
struct Folder {
  TreeFold fold;
  std::vector<ReductionPlan::Fold> pieces;

  void push(TreeNode node, int input) {
    pieces.push_back({.program = {input}});
    for (int additions = fold.push(node); additions > 0; --additions) {
      const std::vector<int> right = pieces.back().program;
      pieces.pop_back();
      std::vector<int>& left = pieces.back().program;
      left.insert(left.end(), right.begin(), right.end());
      left.push_back(Fold::add);
    }
  }
};

std::string name_of_input(const Round& round, int input) {
  if (input < round.levels) return concat("level ", input);
  int rank = 0, slot = input - round.levels;
  for (; slot >= round.slots_of_rank[static_cast<size_t>(rank)]; ++rank)
    slot -= round.slots_of_rank[static_cast<size_t>(rank)];
  return concat("slot ", slot, " of rank ", rank);
}

/// "((a + b) + c)".
std::string expression(const Round& round, const std::vector<int>& program) {
  std::vector<std::string> stack;
  for (const int step : program) {
    if (step != Fold::add) {
      stack.push_back(name_of_input(round, step));
      continue;
    }
    const std::string right = stack.back();
    stack.pop_back();
    stack.back() = concat("(", stack.back(), " + ", right, ")");
  }
  return stack.back();
}

}  // namespace

const char* name(Execution execution) { return execution == Execution::ranges ? "ranges" : "interleaved"; }

std::vector<int> replicas_of(int replicas, int ranks, int rank, Execution execution) {
  require(replicas >= ranks, "dist.replicas = ", replicas, " is fewer than the ", ranks,
          " ranks: start at most one rank per replica, or raise dist.replicas");
  const auto bound = [&](int r) { return static_cast<int>(int64_t{replicas} * r / ranks); };
  const bool is_range = execution == Execution::ranges;
  std::vector<int> mine;
  for (int v = is_range ? bound(rank) : rank; v < (is_range ? bound(rank + 1) : replicas);
       v += is_range ? 1 : ranks)
    mine.push_back(v);
  return mine;
}

int TreeFold::push(TreeNode node) {
  int additions = 0;
  for (;;) {
    const int64_t next_begin = (int64_t{node.index} + 1) << node.level;
    const bool is_root = node.index == 0 && next_begin >= replicas_;
    if (is_root) break;
    if (node.index % 2 == 0) {
      if (next_begin < replicas_) break;  // the right sibling is still to come
    } else {
      if (pending_.empty() || !(pending_.back() == TreeNode{node.level, node.index - 1})) break;
      pending_.pop_back();
      ++additions;
    }
    node = {node.level + 1, node.index / 2};
  }
  pending_.push_back(node);
  return additions;
}

ReductionPlan::ReductionPlan(int replicas, int ranks_of_all, int this_rank, Execution policy, bool merges)
    : total_replicas(replicas), ranks(ranks_of_all), rank(this_rank), execution(policy), merges_last(merges) {
  const int total = total_replicas;
  std::vector<std::vector<std::vector<int>>> indices;  // [rank][round][replica]
  for (int r = 0; r < ranks; ++r) indices.push_back(rounds_of(total, ranks, r, execution));
  rounds.resize(indices[0].size());
  std::vector<TreeNode> kept;  // in the owners' counters
  for (size_t i = 0; i < rounds.size(); ++i) {
    Round& round = rounds[i];
    Folder folder{TreeFold(total), {}};
    int inputs = 0;
    for (const TreeNode& node : kept) folder.push(node, inputs++);
    round.levels = inputs;
    for (int r = 0; r < ranks; ++r) {
      const LocalPart part(total, indices[static_cast<size_t>(r)][i], merges_last);
      if (r == rank) round.replicas = part.replicas;
      for (const Replica& replica : part.replicas) slots = std::max(slots, replica.slot + 1);
      for (const TreeNode& node : part.nodes) folder.push(node, inputs++);
      round.slots_of_rank.push_back(static_cast<int>(part.nodes.size()));
    }
    kept = folder.fold.pending();
    const bool is_last = i + 1 == rounds.size();
    for (size_t level = 0; level < folder.pieces.size(); ++level) {
      ReductionPlan::Fold& piece = folder.pieces[level];
      if (!is_last) piece.level = static_cast<int>(level);
      const bool is_there = !is_last && piece.program == std::vector<int>{piece.level};
      if (!is_there || round.levels <= piece.level) round.folds.push_back(piece);
    }
    if (!is_last) levels = std::max(levels, static_cast<int>(kept.size()));
  }
}

std::vector<int> ReductionPlan::replicas() const {
  std::vector<int> mine;
  for (const Round& round : rounds)
    for (const Replica& replica : round.replicas) mine.push_back(replica.index);
  return mine;
}

std::string ReductionPlan::to_text() const {
  std::string text =
      concat("rank ", rank, " of ", ranks, ", ", total_replicas, " replicas, ", name(execution), "\n");
  for (size_t i = 0; i < rounds.size(); ++i) {
    const Round& round = rounds[i];
    text += concat("round ", i, "\n");
    for (size_t k = 0; k < round.replicas.size(); ++k) {
      const Replica& replica = round.replicas[k];
      text += concat("  replica ", replica.index, " writes slot ", replica.slot, "\n");
      const bool is_left_to_owners = !merges_last && k + 1 == round.replicas.size();
      for (int n = 0; n < replica.additions && !is_left_to_owners; ++n)
        text += concat("  slot ", replica.slot - n - 1, " += slot ", replica.slot - n, "\n");
    }
    for (const Fold& fold : round.folds)
      text += concat("  owners: ", fold.level == Fold::mean ? "sum" : concat("level ", fold.level), " = ",
                     expression(round, fold.program), "\n");
  }
  return text;
}

}  // namespace lockstep
