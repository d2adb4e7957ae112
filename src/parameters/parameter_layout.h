// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/tensor/range.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

/// Ranges of one flat space for each rank: [rank], each in order.
using Ownership = std::vector<std::vector<Range>>;

/// Returns the total number of elements in the ranges.
int64_t size_of(const std::vector<Range>& ranges);

/// The elements of a flat space that a buffer holds: some ranges, in order, one after another.
class Placement {
 public:
  Placement() = default;
  /// Ranges must be in order and must not overlap. Ranges that touch are joined. Empty ranges are left out.
  explicit Placement(const std::vector<Range>& ranges);
  /// Returns the placement of all of [0, elements).
  static Placement whole(int64_t elements) { return Placement({{0, elements}}); }

  const std::vector<Range>& ranges() const { return ranges_; }
  int64_t elements() const { return ranges_.empty() ? 0 : offsets_.back() + ranges_.back().size(); }
  bool is_whole(int64_t of_elements) const { return elements() == of_elements; }
  /// Returns the offset of a range in the buffer. Throws Error if the buffer does not hold it in one piece.
  int64_t offset_of(Range range) const;

  bool operator==(const Placement&) const = default;

 private:
  std::vector<Range> ranges_;
  std::vector<int64_t> offsets_;  ///< offset of each range in the buffer
};

/// A part of a flat space in memory: values, gradients, or an optimizer state.
class FlatBuffer {
 public:
  FlatBuffer() = default;
  /// `memory` has [placement.elements()]. `is_part`: ranks divide the space, even if one holds all of it.
  FlatBuffer(Tensor memory, Placement placement, bool is_part = false);
  /// Returns a buffer with undefined contents. `pinned`: host memory from and to which a GPU copies.
  static FlatBuffer make(const Placement& placement, DType dtype, const Stream& stream, bool pinned = false);

  explicit operator bool() const { return static_cast<bool>(memory_); }
  /// Returns all of it: [placement().elements()].
  const Tensor& memory() const { return memory_; }
  operator const Tensor&() const { return memory_; }
  template <class T>
  T* data() const {
    return memory_.data<T>();
  }
  int64_t size() const { return placement_.elements(); }
  const Placement& placement() const { return placement_; }
  DType dtype() const { return memory_.dtype(); }
  /// Returns whether every rank has all of it. All ranks get the same answer.
  bool is_whole(int64_t of_elements) const {
    return memory_ && !is_part_ && placement_.is_whole(of_elements);
  }

  /// Returns elements that the buffer holds in one piece, as a kernel's view or as a tensor [range.size()].
  View view(Range range) const;
  Tensor part(Range range) const;

 private:
  Tensor memory_;
  Placement placement_;
  bool is_part_ = false;
};

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
  static constexpr int64_t block = 4096;
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
