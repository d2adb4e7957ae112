// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "lockstep/movement/sharding.h"
#include "lockstep/parameters/gradient_norm.h"

namespace lockstep {

namespace detail {
class GradientReducer;
struct TransferPlan;
}  // namespace detail

/// A request of one rank to all ranks. It travels with the gradients. So all ranks learn it after the same
/// step, without an extra message.
enum class Vote {
  stop,      ///< stop after the step
  snapshot,  ///< write a snapshot after the step
};

/// The loss, the votes and the sums of squares, which ranks exchange once per step. Losses and votes travel
/// as reserved elements of the gradients. So they are averaged like these, without a message of their own.
class StepSummary {
 public:
  /// Keeps references. All ranks call it.
  StepSummary(ParameterSpace& space, const Sharding& sharding, detail::GradientReducer& reducer);
  ~StepSummary();
  StepSummary(const StepSummary&) = delete;
  StepSummary& operator=(const StepSummary&) = delete;

  /// Returns the mean of the replicas' losses, one element on the parameters' device. The bits are equal on
  /// every rank. It is valid from the end of a step to the next backward().
  Tensor mean_loss() const;
  /// Returns the norm of the gradients of the last DataParallel::step(), before clipping, as f64.
  const Tensor& gradient_norm() const { return norm_.norm; }
  /// Returns the seconds of the last step in which this rank waited for communication.
  double exposed_seconds() const;
  /// Sends this rank's request with every backward() from now on. `wanted` = false withdraws it.
  void vote(Vote what, bool wanted = true);
  /// Returns one element for each Vote, in order, that is above zero if a rank has asked. The bits are equal
  /// on every rank. They are valid as long as mean_loss().
  Tensor votes() const;
  /// Returns mean_loss() and then votes(), in one tensor.
  Tensor loss_and_votes() const;

 private:
  friend class DataParallel;
  void write(const Tensor& loss, const Tensor& target, bool adds) const;
  const Tensor& exchange(double max_norm, const Tensor& scale);
  Tensor ordered_squares() const;

  ParameterSpace& space_;
  detail::GradientReducer& reducer_;
  std::vector<Range> mine_;  ///< the elements that this rank updates
  /// Sent between ranks in each step: the reserved elements, then the sums of squares of all blocks, those of
  /// rank 0 first.
  Tensor all_;
  Tensor squares_by_owner_, own_squares_;  ///< in `all_`
  Tensor squares_, place_of_block_;        ///< the squares in the order of the space; empty for one rank
  std::unique_ptr<detail::TransferPlan> plan_;
  Tensor votes_;  ///< this rank's request for each Vote, in order: 0 or 1
  Tensor told_;   ///< the averaged reserved elements of the last step
  GradientNorm norm_;
};

}  // namespace lockstep
