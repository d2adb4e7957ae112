// SPDX-License-Identifier: Apache-2.0
// The names and descriptions of the mistakes that check_exercise knows.
#include <algorithm>

#include "apps/tutorial/exercises/check/reference_run.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

struct Description {
  Mistake mistake;
  const char* name;
  const char* text;
};

const std::vector<Description> descriptions = {
    {Mistake::no_step, "no step", "never updates its parameters, or updates them by gradients of 0"},
    {Mistake::no_momentum, "no momentum", "trains without momentum"},
    {Mistake::dampened_momentum, "dampened momentum",
     "multiplies the gradient by 1 - momentum, as Adam does; PyTorch's SGD does not"},
    {Mistake::rounded_twice, "rounded twice",
     "rounds the product before it adds it to the value; std::fma(a, b, c) rounds once"},
    {Mistake::own_gradient, "gradient not averaged",
     "lets every rank take a step by its own gradient: gradients are not averaged"},
    {Mistake::last_gradient, "last gradient", "uses the gradient of the last batch of a step only"},
    {Mistake::gradient_sum, "sum of gradients",
     "uses the sum of the gradients instead of their mean: it is not divided by their number"},
    {Mistake::chain_of_additions, "chain of additions",
     "adds ((0 + 1) + 2) + 3; the tree adds neighbours first, (0 + 1) + (2 + 3)"},
    {Mistake::epoch_not_set, "epoch not set",
     "has the order of epoch 0 in every epoch: the epoch of its sampler is never set"},
    {Mistake::not_shuffled, "not shuffled",
     "takes the samples in the order of the data, not in the epoch's order"},
    {Mistake::samples_in_blocks, "samples in blocks",
     "gives each rank a block of the order, not every N-th place of it"},
    {Mistake::samples_left_out, "samples left out",
     "leaves out the samples that are left over when the ranks share them; shares are rounded up, and the "
     "order starts over"},
    {Mistake::not_shared, "samples not shared",
     "lets every rank take all samples: they are not shared, or there is one rank only"},
    {Mistake::first_replica, "wrong replica", "lets every rank take the samples of replica 0"},
    {Mistake::local_rank_as_rank, "local rank as rank",
     "uses the local rank as the rank: the ranks of the second node have the samples of the first node"},
    {Mistake::samples_of_the_node, "samples of the node",
     "lets the ranks of each node share all samples among themselves: every node trains on the same ones"},
    {Mistake::replica_a_rank, "a replica a rank",
     "has one replica per rank, so that another number of ranks is another run"},
    {Mistake::mean_of_means, "mean of means",
     "averages the means of the batches: the samples of short batches count more"},
    {Mistake::own_part, "own part", "reports the evaluation of rank 0, not of all ranks"},
    {Mistake::momentum_lost, "momentum lost",
     "resumes with velocity 0: the optimizer's state is not in the snapshot, or not restored"},
    {Mistake::values_lost, "values lost", "resumes with initial parameters: nothing was restored"},
    {Mistake::epoch_repeated, "epoch repeated",
     "trains the last epoch before the snapshot again: the number of finished epochs is epoch + 1"},
    {Mistake::epoch_left_out, "epoch left out", "counts one epoch too many and leaves out the next one"},
    {Mistake::data_from_the_beginning, "data from the beginning",
     "resumes with the samples of the first epoch: the loader did not seek to the position of the run"},
    {Mistake::epochs_as_steps, "epochs as steps",
     "resumes with the samples of an early step: a number of epochs is used as a number of steps"},
    {Mistake::not_resumed, "not resumed", "begins again at its second start"},
    {Mistake::rank_0_alone_resumed, "rank 0 alone resumed",
     "resumes on rank 0 only: the other ranks do not get the snapshot and begin again"},
    {Mistake::node_0_alone_resumed, "node 0 alone resumed",
     "resumes on the first node only: the other ranks find no snapshot on their disk and "
     "begin again"},
    {Mistake::earlier_gradients, "gradients of earlier steps",
     "adds to the gradients of earlier steps, as PyTorch does without zero_grad"},
    {Mistake::first_part, "first part", "takes the first part of the batch every time"},
    {Mistake::not_unscaled, "scale not divided out", "takes its steps with gradients that are still scaled"},
    {Mistake::overflow_not_skipped, "overflow not skipped",
     "takes a step with infinite or NaN gradients: no parameter is finite after it"},
    {Mistake::overflow_counted, "overflow counted",
     "counts a skipped step as a good one and doubles the scale too early"},
    {Mistake::scale_not_halved, "scale not halved",
     "keeps its scale after an overflow, so that every later step overflows as well"},
    {Mistake::other_mask, "another mask",
     "drops other numbers when the half runs again: its key is different there"},
    {Mistake::same_mask, "one mask for all",
     "drops the same numbers in every step: the key is always the same"},
    {Mistake::gradient_of_another_part, "gradient of another part",
     "moves every rank's part by the gradients of the first part"},
    {Mistake::values_not_gathered, "values not gathered",
     "lets every rank move only its own part: it does not get the parts that other ranks moved"},
    {Mistake::first_part_everywhere, "first part everywhere",
     "begins every rank's part where the first part begins, so that the first part replaces all"},
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
  throw UserError(concat("no mistake is called '", name, "'; the mistakes are: ", names));
}

std::string describe(Mistake mistake) { return description(mistake).text; }

}  // namespace lockstep
