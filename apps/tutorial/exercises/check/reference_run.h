// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// One start of a run, which resumes where the previous start ended.
struct Start {
  int ranks = 1;
  int until_epoch = 2;  ///< the number of finished epochs at its end
};

/// The data that ranks shard: nothing, the whole flat space, or each layer.
enum class Cut { nothing, space, layers };

/// The training of an exercise, which uses the tutorial's data and an MLP. Its fields define the bits.
struct Job {
  std::vector<int64_t> widths = {20, 1};
  std::vector<int64_t> second_widths = {};  ///< of a second half after a ReLU and dropout; empty means none
  int64_t batch_size = 32;
  int parts = 1;            ///< micro-batches per batch, with one backward() each
  int growth_interval = 0;  ///< of a gradient scaler for an fp16 model; 0 means fp32
  int replicas = 0;         ///< 0 means one for each rank of the first start
  int nodes = 1;
  Cut cut = Cut::nothing;
  double momentum = 0.0;
  uint64_t seed = 0;       ///< of the initial values
  bool evaluates = false;  ///< evaluates 500 other samples after every epoch
  std::vector<Start> starts = {{}};
};

/// Returns the number of steps per epoch at the first start.
int64_t steps_per_epoch(const Job& job);

/// The known mistakes of a training program.
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

/// Returns all mistakes but `none`, in order.
const std::vector<Mistake>& all_mistakes();
/// Returns the short name of a mistake, such as "gradient not averaged".
std::string name(Mistake mistake);
/// Returns the mistake of this name. Throws UserError that lists all names if there is no such mistake.
Mistake mistake_named(const std::string& name);
/// Describes a run with this mistake. The text completes "these are the bits of a run that".
std::string describe(Mistake mistake);

/// A loss that a run reports. Two points are equal if their bits are.
struct Point {
  int64_t step = 0;  ///< from 1
  bool is_evaluation = false;
  float loss = 0.0f;

  bool operator==(const Point& other) const;
};

/// Computes the losses of each start of a job with this mistake, on one thread and without ranks. Uses
/// tensors and backward() of the library. Samples, averages, updates and resume are computed here.
std::vector<std::vector<Point>> trace(const Job& job, Mistake mistake = Mistake::none);

}  // namespace lockstep
