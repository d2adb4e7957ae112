// SPDX-License-Identifier: Apache-2.0
// What check_exercise calls the mistakes that it knows, and says of them.
#include <algorithm>

#include "apps/tutorial/exercises/check/reference_run.h"
#include "core/error.h"

namespace lockstep {
namespace {

struct Description {
  Mistake mistake;
  const char* name;
  const char* text;
};

const std::vector<Description> descriptions = {
    {Mistake::no_step, "no step", "never updates its parameters, or by gradients of 0"},
    {Mistake::no_momentum, "no momentum", "trains without momentum"},
    {Mistake::dampened_momentum, "dampened momentum",
     "multiplies the gradient by 1 - momentum, as Adam does; PyTorch's SGD does not"},
    {Mistake::rounded_twice, "rounded twice",
     "rounds the product before it adds it to the value; std::fma(a, b, c) rounds once"},
    {Mistake::own_gradient, "gradient not averaged",
     "lets every rank take a step by its own gradient: gradients are not averaged"},
    {Mistake::last_gradient, "last gradient", "uses the gradient of the last batch of a step only"},
    {Mistake::gradient_sum, "sum of gradients",
     "takes the sum of the gradients for their mean: it is not divided by how many they are"},
    {Mistake::chain_of_additions, "chain of additions",
     "adds ((0 + 1) + 2) + 3; the tree adds neighbours first, (0 + 1) + (2 + 3)"},
    {Mistake::epoch_not_set, "epoch not set",
     "has the order of epoch 0 in every epoch: its sampler was never told the epoch"},
    {Mistake::not_shuffled, "not shuffled", "takes the samples as they lie, not in the epoch's order"},
    {Mistake::samples_in_blocks, "samples in blocks",
     "gives each rank a block of the order, not every N-th place of it"},
    {Mistake::samples_left_out, "samples left out",
     "leaves out the samples that are left over when the ranks share them; shares are rounded up, and the "
     "order starts over"},
    {Mistake::not_shared, "samples not shared",
     "lets every rank take all samples: they are not shared, or there is one rank only"},
    {Mistake::first_replica, "wrong replica", "lets every rank take the samples of replica 0"},
    {Mistake::local_rank_as_rank, "local rank as rank",
     "takes the local rank for the rank: the ranks of the second node have the samples of the first's"},
    {Mistake::samples_of_the_node, "samples of the node",
     "lets the ranks of each node share all samples among themselves: every node trains on the same ones"},
    {Mistake::replica_a_rank, "a replica a rank",
     "has one replica a rank, so that another number of ranks is another run"},
    {Mistake::mean_of_means, "mean of means",
     "takes the mean over the batches of their means: the samples of short batches count more"},
    {Mistake::own_part, "own part", "reports what rank 0 has evaluated, not what all ranks have"},
    {Mistake::momentum_lost, "momentum lost",
     "goes on with velocity 0: the optimizer's state is not in the snapshot, or not restored"},
    {Mistake::values_lost, "values lost", "goes on with initial parameters: nothing was restored"},
    {Mistake::epoch_repeated, "epoch repeated",
     "trains the last epoch before the snapshot once more: the epochs that are over are epoch + 1"},
    {Mistake::epoch_left_out, "epoch left out",
     "counts an epoch more than was trained, and leaves out the next one"},
    {Mistake::data_from_the_beginning, "data from the beginning",
     "goes on with the samples of the first epoch: the loader was not sent to the place where the run was"},
    {Mistake::epochs_as_steps, "epochs as steps",
     "goes on with the samples of an early step: a number of epochs was taken for one of steps"},
    {Mistake::not_resumed, "not resumed", "begins anew at its second start"},
    {Mistake::rank_0_alone_resumed, "rank 0 alone resumed",
     "goes on with rank 0 alone: what it has read does not reach the others, which begin anew"},
    {Mistake::node_0_alone_resumed, "node 0 alone resumed",
     "goes on with the ranks of the first node alone: the others find no snapshot on their disk, and "
     "begin anew"},
    {Mistake::earlier_gradients, "gradients of earlier steps",
     "adds to the gradients of the steps before, as PyTorch does without zero_grad"},
    {Mistake::first_part, "first part", "takes the first part of the batch every time"},
    {Mistake::not_unscaled, "scale not divided out",
     "takes its steps by gradients that still have the scale"},
    {Mistake::overflow_not_skipped, "overflow not skipped",
     "takes a step by gradients that are infinite or no numbers: no parameter is a number after it"},
    {Mistake::overflow_counted, "overflow counted",
     "counts a skipped step among the good ones, and doubles the scale too early"},
    {Mistake::scale_not_halved, "scale not halved",
     "keeps its scale after an overflow, so that every later step overflows as well"},
    {Mistake::other_mask, "another mask",
     "drops other numbers when the half runs again: the key is another one there"},
    {Mistake::same_mask, "one mask for all",
     "drops the same numbers in every step: the key is always the same"},
    {Mistake::gradient_of_another_part, "gradient of another part",
     "moves every rank's part by the gradients of the first part"},
    {Mistake::values_not_gathered, "values not gathered",
     "lets every rank move its own part alone: what the others have moved does not reach it"},
    {Mistake::first_part_everywhere, "first part everywhere",
     "takes every rank's part to begin where the first one does, so that it stands in the place of all"},
};

const Description& description(Mistake mistake) {
  const auto found = std::find_if(descriptions.begin(), descriptions.end(),
                                  [&](const Description& each) { return each.mistake == mistake; });
  expect(found != descriptions.end(), "a mistake without a description");
  return *found;
}

}  // namespace

const std::vector<Mistake>& all_mistakes() {
  static const std::vector<Mistake> all = [] {
    std::vector<Mistake> mistakes;
    for (const Description& each : descriptions) mistakes.push_back(each.mistake);
    return mistakes;
  }();
  return all;
}

std::string name(Mistake mistake) { return description(mistake).name; }

Mistake mistake_named(const std::string& name) {
  std::string names;
  for (const Description& each : descriptions) {
    if (each.name == name) return each.mistake;
    names += concat(names.empty() ? "" : ", ", each.name);
  }
  throw UserError(concat("no mistake is called '", name, "'; there are: ", names));
}

std::string describe(Mistake mistake) { return description(mistake).text; }

}  // namespace lockstep
