// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/step_summary.h"

#include "lockstep/dist/gradient_reducer.h"
#include "lockstep/kernels/arithmetic.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/tensor/create.h"

namespace lockstep {
namespace {

constexpr int64_t reserved = BucketPlan::reserved, loss_element = 0, first_vote = 1, vote_kinds = 2;
static_assert(first_vote == loss_element + 1 && first_vote + vote_kinds <= reserved);

}  // namespace

StepSummary::StepSummary(ParameterSpace& space, const Sharding& sharding, GradientReducer& reducer)
    : space_(space),
      reducer_(reducer),
      mine_(sharding.updates[static_cast<size_t>(reducer.plan().rank)]),
      votes_(full({vote_kinds}, 0.0, DType::f32, space.layout.stream())) {
  constexpr int64_t floats_a_block = sizeof(double) / sizeof(float);
  const int rank = reducer.plan().rank;
  Ownership owned = blocks_by_owner(sharding.updates);
  const Range own = owned[static_cast<size_t>(rank)][0];
  const int64_t blocks = owned.back()[0].end, elements = reserved + floats_a_block * blocks;
  const auto memory = reducer.movement().allocate(elements, false);
  all_ = Tensor(memory, 0, {elements}, DType::f32);
  squares_by_owner_ = Tensor(memory, reserved * 4, {blocks}, DType::f64);
  own_squares_ = squares_by_owner_.slice(own.begin, own.end);
  told_ = reducer.cuts_gradients() ? all_.slice(0, reserved) : reducer.reserved_mean();
  for (std::vector<Range>& ranges : owned)
    ranges[0] = {reserved + floats_a_block * ranges[0].begin, reserved + floats_a_block * ranges[0].end};
  owned[0][0].begin = 0;
  plan_ = std::make_unique<TransferPlan>(TransferPlan::in_place(owned, elements, rank));
  if (reducer.plan().ranks == 1) return;
  const Stream& stream = space.layout.stream();
  squares_ = empty({blocks}, DType::f64, stream);
  place_of_block_ = empty({blocks}, DType::i32, stream);
  if (mode_of(stream).is_dry) return;
  copy_bytes(place_of_block_.view().data, stream, places_of_blocks(sharding.updates).data(), cpu_stream(),
             blocks * 4);
}

StepSummary::~StepSummary() = default;

double StepSummary::exposed_seconds() const { return reducer_.exposed_seconds(); }

/// Writes the votes and this micro-batch's share of the replica's mean loss. Shares are added from left to
/// right.
void StepSummary::write(const Tensor& loss, const Tensor& target, bool adds) const {
  expect(loss && loss.size() == 1 && loss.dtype() == DType::f32, "the loss of a replica is one f32 number");
  const Stream& stream = space_.layout.stream();
  const Tensor sum = target.slice(loss_element, loss_element + 1);
  const Tensor share = adds ? empty({1}, DType::f32, stream) : sum;
  const View value{loss.view().data, {1}, DType::f32};
  launch(stream, Scale{.x = value, .y = share.view(), .factor = 1.0 / reducer_.plan().accumulate});
  if (adds) launch(stream, Add{.a = sum.view(), .b = share.view(), .y = sum.view()});
  copy(votes_, target.slice(first_vote, first_vote + vote_kinds));
}

/// Gathers the summary of a step whose gradients are reduced. Returns the clip factor, one f32 element.
const Tensor& StepSummary::exchange(double max_norm, const Tensor& scale) {
  const Tensor on_the_way = all_.slice(0, reserved);
  // A single rank has the means where they are read.
  const bool is_alone = reducer_.plan().ranks == 1 && !reducer_.cuts_gradients();
  const bool has_means = !reducer_.cuts_gradients() || reducer_.plan().rank == 0;
  if (has_means && !is_alone) copy(reducer_.reserved_mean(), on_the_way);
  square_blocks(space_, mine_, own_squares_);
  reducer_.transfer({.plan = *plan_, .from = all_.view(), .to = all_.view()});
  if (!reducer_.cuts_gradients() && !is_alone) copy(on_the_way, told_);
  // Every rank computes it from the same numbers. So all ranks skip a step, or none does.
  norm_ = norm_of_blocks(ordered_squares(), max_norm, scale);
  return norm_.factor;
}

/// Returns the squares of all blocks in the order of the space, which is that of the norm's additions.
Tensor StepSummary::ordered_squares() const {
  if (!squares_) return squares_by_owner_;
  const auto as_rows = [](const Tensor& squares) {  // the bits of an f64 as two f32
    return View{squares.view().data, {squares.size(), 2}, DType::f32};
  };
  launch(space_.layout.stream(),
         EmbeddingForward{
             .ids = place_of_block_.view(), .table = as_rows(squares_by_owner_), .y = as_rows(squares_)});
  return squares_;
}

Tensor StepSummary::mean_loss() const { return told_.slice(loss_element, loss_element + 1).reshape(Shape{}); }

void StepSummary::vote(Vote what, bool wanted) {
  const auto element = static_cast<int64_t>(what);
  fill(votes_.slice(element, element + 1), wanted ? 1.0 : 0.0);
}

Tensor StepSummary::votes() const { return told_.slice(first_vote, first_vote + vote_kinds); }

Tensor StepSummary::loss_and_votes() const { return told_.slice(loss_element, first_vote + vote_kinds); }

}  // namespace lockstep
