// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/parameters/parameter_space.h"

namespace lockstep {

namespace detail {
class HostUpdate;
}

/// Elements of one parameter group in an update.
struct UpdateSlice {
  ParameterGroup group;
  View value;                ///< f32, updated
  View gradient;             ///< like value
  std::vector<View> states;  ///< like value, in the optimizer's order, updated
  View copy = {};            ///< optional, read by operations; receives the new value, rounded to nearest
};

/// Updates the parameters of a space from their gradients: all of them, or a rank's owned ranges if ranks
/// share the work. The update of an element depends on that element alone and is the same on every device.
/// Values on the host are updated there.
class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  ParameterSpace& space() const { return space_; }

  /// Makes one update with this learning rate. Gradients are multiplied by `gradient_scale` (the clip
  /// factor). Throws Error naming a parameter that has no gradient.
  void step(double learning_rate, float gradient_scale = 1.0f);

  /// Counts an update and sends its learning rate to the device, before each replay of a recorded step. A
  /// step that is recorded once and replayed calls prepare() and update() instead of step().
  virtual void prepare(double learning_rate);
  /// Updates all elements; this part of a step is recorded. `clip`, one f32 element on the parameters'
  /// device, multiplies the gradients. If it is NaN, nothing is updated.
  void update(const Tensor& clip);
  /// Updates these elements of the space alone. Gradients of other elements are not needed.
  void update(std::span<const Range> ranges, const Tensor& clip);

  /// Counts steps on the update's device from now on, as a GradScaler needs. Steps that a NaN in `clip` skips
  /// are not counted. step(), which skips none, then throws Error.
  void count_on_device();
  bool counts_on_device() const { return static_cast<bool>(count_); }

  /// Returns whether update() reads from device memory everything that prepare() changes.
  virtual bool can_be_recorded() const { return false; }

  /// A number for each trainable element that is kept from step to step.
  struct State {
    std::string name;  ///< "exp_avg"
    FlatBuffer flat;   ///< all trainable elements unless place_states() has chosen a part
  };
  /// Returns the states, which are made as zeros at first use.
  const std::vector<State>& states();
  /// Keeps the states of these elements alone from now on, in new memory. Existing numbers are copied.
  void place_states(const Placement& placement);
  /// Moves the states to `memory`, which has a tensor of [placement.elements()] for each state. Copies the
  /// numbers of `mine`, the elements that this rank updates.
  void place_states(const std::vector<Tensor>& memory, const Placement& placement,
                    std::span<const Range> mine);
  std::vector<std::string> state_names() const;
  /// Sets whether this rank holds its states of all elements. Otherwise updates of all elements throw Error.
  void set_states_are_whole(bool whole) { states_are_whole_ = whole; }

  /// Returns the tensors that a snapshot must keep besides the parameters and steps_taken(), named
  /// "<parameter>.<state>". Throws Error if this rank keeps only a part of them.
  std::vector<NamedTensor> state();

  /// Returns the number of updates so far (Adam's t). If a device counts them, the host waits for it.
  int64_t steps_taken() const;
  void set_steps_taken(int64_t steps);

 protected:
  /// Keeps a reference to the space. States begin as zeros.
  Optimizer(ParameterSpace& space, const std::vector<std::string>& states);

  /// Launches the update of these parts on `stream`, where they and `clip` are stored. `clip` may be empty.
  /// Nothing is written if gradient_scale * clip is not finite.
  virtual void apply(const Stream& stream, std::span<const UpdateSlice> parts, const Tensor& clip,
                     float gradient_scale) = 0;
  /// Sets part.copy = part.value, for an apply() whose kernel has not done it.
  static void write_copies(const Stream& stream, std::span<const UpdateSlice> parts);

  ParameterSpace& space_;
  std::vector<State> states_;
  double learning_rate_ = 0.0;
  int64_t steps_taken_ = 0;  ///< used if `count_` is empty
  Tensor count_;             ///< i32, on the update's device, or empty

 private:
  void expect_whole() const;
  std::vector<UpdateSlice> slices_of(std::span<const Range> ranges, const FlatBuffer& gradients,
                                     const FlatBuffer& copies) const;
  void update_on_host(std::span<const Range> ranges, const Tensor& clip);

  std::unique_ptr<detail::HostUpdate> host_update_;  ///< used if values are on the host
  bool states_are_whole_ = true;
};

/// AdamW (Loshchilov & Hutter 2019) as in PyTorch. A parameter's group decides about its weight decay.
class AdamW : public Optimizer {
 public:
  struct Options {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.0;
  };

  AdamW(ParameterSpace& space, Options options);

  void prepare(double learning_rate) override;
  bool can_be_recorded() const override { return static_cast<bool>(schedule_); }

 private:
  void apply(const Stream& stream, std::span<const UpdateSlice> parts, const Tensor& clip,
             float gradient_scale) override;

  Options options_;
  Tensor schedule_;  ///< numbers of a step in GPU memory, which prepare() writes; else empty
};

/// SGD with PyTorch's momentum: velocity = momentum * velocity + gradient. Steps are not recorded as graphs.
class Sgd : public Optimizer {
 public:
  struct Options {
    double momentum = 0.0;
    double weight_decay = 0.0;
  };

  Sgd(ParameterSpace& space, Options options);

 private:
  void apply(const Stream& stream, std::span<const UpdateSlice> parts, const Tensor& clip,
             float gradient_scale) override;

  Options options_;
};

}  // namespace lockstep
