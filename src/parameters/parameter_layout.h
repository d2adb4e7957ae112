// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/sum.h"
#include "parameters/flat_buffer.h"

namespace lockstep {

/// How optimizers treat a parameter.
struct ParameterGroup {
  bool decays = true;                           ///< weight decay applies
  double learning_rate_factor = 1.0;            ///< times the learning rate of the step
  std::optional<double> own_weight_decay = {};  ///< replaces the optimizer's, whatever `decays` is

  double weight_decay(double of_optimizer) const {
    return own_weight_decay ? *own_weight_decay : decays ? of_optimizer : 0.0;
  }
  bool operator==(const ParameterGroup&) const = default;
};

/// A function that returns the group of a parameter.
using GroupRule = std::function<ParameterGroup(const std::string& name, const Tensor& tensor)>;

/// Returns the usual group: tensors of two or more dimensions decay; biases and norm weights do not.
ParameterGroup matrices_decay(const std::string& name, const Tensor& tensor);

/// One tensor of a model and its place in the flat space. Listed several times, it is still one parameter.
struct Parameter {
  std::string name;                      ///< the first name under which it is listed
  std::vector<std::string> other_names;  ///< the further names of a tied tensor
  Tensor tensor;
  Range place;
  ParameterGroup group;
  bool is_frozen = false;  ///< it requires no gradient, so it has neither gradient nor state
};

/// The parameters of a model and their places in one flat space. A value that never changes.
///
/// The space is cut into units. Each numbered part of the model is one ("transformer.h.0", "layers.3"), and
/// so is each module outside of those. A tensor that is listed twice is a unit of its own. Units begin at
/// multiples of 4096 elements, in reverse order of registration. Gradients become ready in about this order.
/// Within a unit, parameters are in reverse order of registration too, each on a multiple of 16 elements (64
/// bytes of fp32). Frozen parameters come last. Gaps between parameters are zero and stay so.
class ParameterLayout {
 public:
  /// Units, owned ranges, buckets and the blocks of the norm are cut at multiples of this number of elements.
  static constexpr int64_t block = sum_block;
  /// A function that returns the unit of a parameter, from the parameter's name.
  using UnitRule = std::function<std::string(const std::string& name)>;

  /// Without a rule all are in one group, as in PyTorch. Throws Error naming a tensor that is not a leaf, has
  /// another dtype or device than the first, or shares a name.
  explicit ParameterLayout(const std::vector<NamedTensor>& listed, const GroupRule& group = {},
                           const UnitRule& unit = {});

  /// Returns the parameters in canonical order, which is that of registration.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const Stream& stream() const { return stream_; }
  DType dtype() const { return dtype_; }

  int64_t elements() const { return units_.empty() ? 0 : units_.back().end; }
  /// Returns the number of elements before the frozen ones.
  int64_t trainable_elements() const { return trainable_; }
  /// Returns the units in flat order. Units of frozen parameters are the last.
  const std::vector<Range>& units() const { return units_; }
  /// Returns the index of the unit that contains a parameter's place.
  int unit_of(Range place) const;
  /// Returns the ranges that each of `ranks` owns. Rank r owns the blocks [b * r / ranks, b * (r + 1) /
  /// ranks) of a unit with b blocks. `frozen_too`: of all units, not only of trainable ones.
  Ownership owned_ranges(int ranks, bool frozen_too = false) const;

  /// A part of the space whose parameters are all in one group.
  struct GroupRange {
    Range range;
    ParameterGroup group;
  };
  /// Returns the trainable part of the ranges, cut by group.
  std::vector<GroupRange> by_group(std::span<const Range> ranges) const;

 private:
  void add(const NamedTensor& listed, const GroupRule& group);
  void lay_out(const UnitRule& unit);

  std::vector<Parameter> parameters_;
  std::vector<Range> units_;
  int64_t trainable_ = 0;
  std::vector<GroupRange> groups_;  ///< ranges of the trainable part, without gaps
  DType dtype_ = DType::f32;
  Stream stream_;
};

}  // namespace lockstep
