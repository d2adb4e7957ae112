// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
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
  std::optional<double> own_weight_decay = {};  ///< instead of the optimizer's, and whatever `decays` says

  double weight_decay(double of_optimizer) const {
    return own_weight_decay ? *own_weight_decay : decays ? of_optimizer : 0.0;
  }
  bool operator==(const ParameterGroup&) const = default;
};

/// Says the group of a parameter.
using GroupRule = std::function<ParameterGroup(const std::string& name, const Tensor& tensor)>;

/// The usual one for transformers: tensors of two and more dimensions decay; biases and norm weights do not.
ParameterGroup matrices_decay(const std::string& name, const Tensor& tensor);

/// One tensor of a model, however often it is listed, and its place in the flat space.
struct Parameter {
  std::string name;                      ///< under which it is listed first
  std::vector<std::string> other_names;  ///< a tied tensor's
  Tensor tensor;
  Range place;
  ParameterGroup group;
  bool is_frozen = false;  ///< it requires no gradient: there is neither gradient nor state for it
};

/// Brings values that a rank does not keep to where operations read them.
class Residency {
 public:
  virtual ~Residency() = default;
  /// As ParameterMemory::find().
  virtual std::byte* find(Range place, DType dtype) = 0;
};

/// All parameters of a model in one flat space: every walk over parameters is a walk over it.
///
/// Parameters are cut into units: a numbered part of the model ("transformer.h.0", "layers.3") each, and each
/// module outside of those; a tensor that is listed twice is a unit of its own. Units begin at multiples of
/// 4096 elements and lie in reverse order of registration, which is about the order in which gradients become
/// ready; so do the parameters in them, each on a multiple of 16 elements (64 bytes of fp32). Frozen
/// parameters lie last. What lies between parameters is zero and stays so.
///
/// Memory is made at first use, so that whoever shares the work between ranks can place it before: values,
/// their copies in 16 bits, gradients and an optimizer's states are flat buffers, of which a rank may hold a
/// part.
class ParameterSpace {
 public:
  /// Elements to which units, segments, buckets and the blocks of the norm are cut.
  static constexpr int64_t block = sum_block;
  /// Says the unit of a parameter, by its name.
  using UnitRule = std::function<std::string(const std::string& name)>;

  /// Takes the listed tensors over. Without a rule all are alike, as in PyTorch. Throws Error naming one that
  /// is not a leaf, has another dtype or device than the first, or shares a name.
  explicit ParameterSpace(const std::vector<NamedTensor>& listed, const GroupRule& group = {},
                          const UnitRule& unit = {});
  ~ParameterSpace();
  ParameterSpace(const ParameterSpace&) = delete;
  ParameterSpace& operator=(const ParameterSpace&) = delete;

  /// In canonical order, that of registration.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Each parameter once, under its first name, in canonical order.
  std::vector<NamedTensor> named() const;
  const Stream& stream() const { return stream_; }
  DType dtype() const { return dtype_; }

  int64_t elements() const { return units_.empty() ? 0 : units_.back().end; }
  /// Those before the frozen ones.
  int64_t trainable_elements() const { return trainable_; }
  /// Units in flat order; those of frozen parameters, if there are any, are the last.
  const std::vector<Range>& units() const { return units_; }
  /// The index of the unit that a parameter's place is in.
  int unit_of(Range place) const;
  /// What each of `ranks` owns: of each unit the blocks [blocks * rank / ranks, ...); of trainable units
  /// alone, or of all.
  Ownership owned_ranges(int ranks, bool frozen_too = false) const;

  /// A part of the space, all of whose parameters are in one group.
  struct GroupRange {
    Range range;
    ParameterGroup group;
  };
  /// The trainable part of the ranges, cut by group.
  std::vector<GroupRange> by_group(std::span<const Range> ranges) const;

  /// Each parameter in a buffer of this space, under "<parameter>.<suffix>": [elements()], or
  /// [trainable_elements()], which leaves frozen ones out.
  std::vector<NamedTensor> named_parts(const Tensor& flat, const std::string& suffix) const;

  /// Says how values will be made; empty once they are. Equal texts mean equal values.
  std::string initial_values() const;
  /// The values that this rank keeps: all, unless place_values() was told otherwise.
  const FlatBuffer& values() const;
  bool values_are_whole() const { return values().is_whole(elements()); }
  /// Writes what the values are in a range, [range.size()], wherever they are now: on this rank, or nowhere
  /// yet.
  void write_values(Range range, const Tensor& target) const;
  /// From now on they lie in `buffer`, which holds them already. Copies are kept as they are.
  void place_values(const FlatBuffer& buffer);
  /// Who brings what this rank does not keep, or null.
  void set_residency(Residency* residency);
  /// Whether values, and so an optimizer's states, lie on the host while the model computes on a GPU.
  bool is_offloaded() const;
  /// Where optimizers work.
  const Stream& update_stream() const { return is_offloaded() ? cpu_stream() : stream_; }

  /// Copies in a 16-bit dtype, in which the model then computes; f32 takes them away. The f32 values stay
  /// what optimizers update, snapshots keep and gradients belong to (Micikevicius et al. 2018).
  void set_precision(DType dtype);
  /// That, or the dtype of the values.
  DType precision() const;
  /// From now on operations read copies, also in the dtype of the values, which may then lie elsewhere.
  void keep_copies();
  bool has_copies() const;
  /// The copies that this rank keeps, or empty.
  const FlatBuffer& copies() const;
  void place_copies(const FlatBuffer& buffer);
  /// Brings the copies of what this rank keeps up to date, after something else than an optimizer has changed
  /// values.
  void refresh_copies() const;

  /// Lets backward() leave gradients in `flat`, [trainable_elements()], or add them to what is there.
  void bind_gradients(const Tensor& flat, bool accumulate = false);
  /// The finished gradients of what this rank updates, which nobody's backward() leaves there.
  void place_gradients(const FlatBuffer& buffer);
  /// Where they are; made if nothing is bound.
  const FlatBuffer& gradients();
  /// Throws Error naming a trainable parameter that has no gradient.
  void expect_gradients() const;
  /// Tells whether this rank holds gradients of all elements. Else grad() throws Error.
  void set_gradients_are_whole(bool whole);
  /// Throws Error if the last backward() has left gradients that hold a loss scale.
  void expect_gradients_without_scale() const;
  /// Tells that it has been divided out of them.
  void set_gradients_have_no_scale();

 private:
  class Memory;
  void add(const NamedTensor& listed, const GroupRule& group);
  void lay_out(const UnitRule& unit);

  std::vector<Parameter> parameters_;
  std::vector<Range> units_;
  int64_t trainable_ = 0;
  std::vector<GroupRange> groups_;  ///< of the trainable part, without gaps
  DType dtype_ = DType::f32;
  Stream stream_;
  std::shared_ptr<Memory> memory_;  ///< known to the tensors too
};

}  // namespace lockstep
