// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parameters/host_update.h"
#include "parameters/parameter_space.h"

namespace lockstep {

/// Some elements of one group on their way through an update.
struct UpdateSlice {
  ParameterGroup group;
  View value;                ///< f32, updated
  View gradient;             ///< like value
  std::vector<View> states;  ///< like value, in the optimizer's order, updated
  View copy = {};            ///< optional, what operations read: written, the new value rounded to nearest
};

/// Updates the parameters of a space from their gradients: all of them, or, where ranks share the work, the
/// segments that a rank owns. What an update does to an element depends on that element alone, and is the
/// same on every device: values that lie on the host are updated there.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  ParameterSpace& space() const { return space_; }

  /// One update with this learning rate; gradients are multiplied by `gradient_scale` (the clip factor) on
  /// the way. Throws Error naming a parameter that has no gradient.
  void step(double learning_rate, float gradient_scale = 1.0f);

  /// The same in two parts, for a step that is recorded once and replayed. prepare() counts the update and
  /// brings its learning rate to the device, ahead of each replay; update() is what is recorded. `clip`, one
  /// f32 element where the parameters are, multiplies the gradients; if it is NaN, nothing is updated.
  virtual void prepare(double learning_rate);
  void update(const Tensor& clip);
  /// The same for these elements of the space alone, whose gradients need not be anywhere else.
  void update(std::span<const Range> ranges, const Tensor& clip);

  /// From now on steps are counted where updates happen, and those that a NaN in `clip` skips are not: what a
  /// GradScaler needs. step(), which skips none, is an Error then.
  void count_on_device();
  bool counts_on_device() const { return static_cast<bool>(count_); }

  /// Whether update() reads on the device whatever prepare() changes.
  virtual bool can_be_recorded() const { return false; }

  /// A number for each trainable element that lives from step to step.
  struct State {
    std::string name;  ///< "exp_avg"
    FlatBuffer flat;   ///< of trainable elements: all, unless place_states() was told otherwise
  };
  /// Made at first use, as zeros.
  const std::vector<State>& states();
  /// From now on this rank keeps those of some elements, which are copied there.
  void place_states(const Placement& placement);
  /// The same into memory that was made for them, one piece of [placement.elements()] for each state: of
  /// `mine`, what this rank updates, the numbers are copied there.
  void place_states(const std::vector<Tensor>& memory, const Placement& placement,
                    std::span<const Range> mine);
  std::vector<std::string> state_names() const;
  /// Tells whether this rank holds its states of all elements for itself. Else updates of all elements throw
  /// Error.
  void set_states_are_whole(bool whole) { states_are_whole_ = whole; }

  /// What a snapshot must keep besides the parameters and steps_taken(), named "<parameter>.<state>". Throws
  /// Error where this rank keeps a part of it.
  std::vector<NamedTensor> state();

  /// Updates so far (Adam's t). Where they are counted on a device the host waits for it.
  int64_t steps_taken() const;
  void set_steps_taken(int64_t steps);

 protected:
  /// Keeps a reference to the space. States begin as zeros.
  Optimizer(ParameterSpace& space, const std::vector<std::string>& states);

  /// Launches the update of these parts on `stream`, where they and `clip`, which may be empty, lie. Nothing
  /// is written if gradient_scale * clip is not finite.
  virtual void apply(const Stream& stream, std::span<const UpdateSlice> parts, const Tensor& clip,
                     float gradient_scale) = 0;
  /// For an apply() whose kernel has not done it: part.copy = part.value.
  static void write_copies(const Stream& stream, std::span<const UpdateSlice> parts);

  ParameterSpace& space_;
  std::vector<State> states_;
  double learning_rate_ = 0.0;
  int64_t steps_taken_ = 0;  ///< unless there is a count on the device
  Tensor count_;             ///< i32, where updates happen, or empty

 private:
  void expect_whole() const;
  std::vector<UpdateSlice> slices_of(std::span<const Range> ranges, const FlatBuffer& gradients,
                                     const FlatBuffer& copies) const;
  void update_on_host(std::span<const Range> ranges, const Tensor& clip);

  std::unique_ptr<HostUpdate> host_update_;  ///< where values lie on the host
  bool states_are_whole_ = true;
};

}  // namespace lockstep
