// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// One start of a run, which goes on from where the one before ended.
struct Start {
  int ranks = 1;
  int until_epoch = 2;  ///< how many epochs are over at its end
};

/// What ranks keep a part of each: nothing, of the whole space, or of each layer.
enum class Cut { nothing, space, layers };

/// The training that an exercise is about: the tutorial's data and an MLP. What defines its bits.
struct Job {
  std::vector<int64_t> widths = {20, 1};
  std::vector<int64_t> second_widths = {};  ///< of a second half, behind a ReLU and dropout; empty: none
  int64_t batch_size = 32;
  int parts = 1;            ///< of a batch, one backward() each
  int growth_interval = 0;  ///< of a gradient scaler, with which the model computes in fp16; 0: in fp32
  int replicas = 0;         ///< 0: one for each rank of the first start
  int nodes = 1;
  Cut cut = Cut::nothing;
  double momentum = 0.0;
  uint64_t seed = 0;       ///< of the initial values
  bool evaluates = false;  ///< after every epoch, on 500 other samples
  std::vector<Start> starts = {{}};
};

/// As it was at the first start.
int64_t steps_per_epoch(const Job& job);

/// What may be wrong with a program that trains.
enum class Mistake {
  none,
  no_step,
  no_momentum,
  dampened_momentum,
  rounded_twice,
  own_gradient,
  last_gradient,
  gradient_sum,
  chain_of_additions,
  epoch_not_set,
  not_shuffled,
  samples_in_blocks,
  samples_left_out,
  not_shared,
  first_replica,
  local_rank_as_rank,
  samples_of_the_node,
  replica_a_rank,
  mean_of_means,
  own_part,
  momentum_lost,
  values_lost,
  epoch_repeated,
  epoch_left_out,
  data_from_the_beginning,
  epochs_as_steps,
  not_resumed,
  rank_0_alone_resumed,
  node_0_alone_resumed,
  earlier_gradients,
  first_part,
  not_unscaled,
  overflow_not_skipped,
  overflow_counted,
  scale_not_halved,
  other_mask,
  same_mask,
  gradient_of_another_part,
  values_not_gathered,
  first_part_everywhere,
};

/// All but `none`, in order.
const std::vector<Mistake>& all_mistakes();
/// "gradient not averaged": a few words.
std::string name(Mistake mistake);
/// Throws UserError listing all names if there is none of that name.
Mistake mistake_named(const std::string& name);
/// What such a run does, to follow "these are the bits of a run that".
std::string describe(Mistake mistake);

/// A loss that a run reports: bits and all.
struct Point {
  int64_t step = 0;  ///< from 1
  bool is_evaluation = false;
  float loss = 0.0f;

  bool operator==(const Point& other) const;
};

/// The losses of each start of a job that is done with this mistake, computed on one thread, without ranks.
/// Shares tensors and backward() with the library; samples, averages, updates and resume are done here.
std::vector<std::vector<Point>> trace(const Job& job, Mistake mistake = Mistake::none);

}  // namespace lockstep
