// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/sum.h"
#include "tensor/tensor.h"

namespace lockstep {

/// Elements [begin, end) of a flat space.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// What both hold.
constexpr Range intersection(Range a, Range b) {
  const int64_t begin = a.begin > b.begin ? a.begin : b.begin, end = a.end < b.end ? a.end : b.end;
  return {begin, begin < end ? end : begin};
}

/// Ranges of one buffer that each rank owns: [rank], each in order.
using Ownership = std::vector<std::vector<Range>>;

/// How optimizers treat a parameter.
struct ParameterGroup {
  bool decays = true;                 ///< weight decay applies
  double learning_rate_factor = 1.0;  ///< times the learning rate of the step
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

/// All parameters of a model in one flat space: every walk over parameters is a walk over it.
///
/// Parameters are cut into units: a numbered part of the model ("transformer.h.0", "layers.3") each, and each
/// module outside of those; a tensor that is listed twice is a unit of its own. Units begin at multiples of
/// 4096 elements and lie in reverse order of registration, which is about the order in which gradients become
/// ready; so do the parameters in them, each on a multiple of 16 elements (64 bytes of fp32). Frozen
/// parameters lie last. What lies between parameters is zero and stays so.
class ParameterSpace {
 public:
  /// Elements to which units, segments, buckets and the blocks of the norm are cut.
  static constexpr int64_t block = sum_block;

  /// Moves the listed tensors into one buffer. Without a rule all are alike, as in PyTorch. Throws Error
  /// naming one that is not a leaf, has another dtype or device than the first, or shares a name.
  explicit ParameterSpace(const std::vector<NamedTensor>& listed, const GroupRule& group = {});
  ~ParameterSpace();
  ParameterSpace(const ParameterSpace&) = delete;
  ParameterSpace& operator=(const ParameterSpace&) = delete;

  /// In canonical order, that of registration.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Each parameter once, under its first name, in canonical order.
  std::vector<NamedTensor> named() const;
  const Stream& stream() const { return values().stream(); }

  int64_t elements() const { return values().size(); }
  /// Those before the frozen ones.
  int64_t trainable_elements() const { return trainable_; }
  /// Units in flat order; those of frozen parameters, if there are any, are the last.
  const std::vector<Range>& units() const { return units_; }
  /// What each of `ranks` owns: of each trainable unit the blocks [blocks * rank / ranks, ...).
  Ownership segments(int ranks) const;

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

  /// All values: [elements()].
  const Tensor& values() const;
  /// Moves them into memory on the same device, such as some that ranks share.
  void move_values(const std::shared_ptr<Storage>& storage);

  /// Copies in a 16-bit dtype, in which the model then computes; f32 takes them away. The f32 values stay
  /// what optimizers update, snapshots keep and gradients belong to (Micikevicius et al. 2018).
  void set_precision(DType dtype);
  /// All copies, or empty.
  const Tensor& copies() const;
  /// Brings the copies up to date, after something else than an optimizer has changed values.
  void refresh_copies() const;

  /// Lets backward() leave gradients in `flat`, [trainable_elements()], or add them to what is there.
  void bind_gradients(const Tensor& flat, bool accumulate = false);
  /// Where backward() leaves gradients; made if nothing is bound.
  const Tensor& gradients();
  /// Throws Error naming a trainable parameter that has no gradient.
  void expect_gradients() const;
  /// Tells whether this rank holds the gradients of all parameters, or those of its segments only, where
  /// Tensor::grad() throws.
  void set_gradients_are_whole(bool whole);
  /// Throws Error if the last walk has left gradients that are multiplied by a GradScaler's scale.
  void expect_gradients_without_scale() const;
  /// Tells that it has been divided out of them.
  void set_gradients_have_no_scale();

 private:
  void add(const NamedTensor& listed, const GroupRule& group);
  void lay_out();
  void make_values();

  std::vector<Parameter> parameters_;
  std::vector<Range> units_;
  int64_t trainable_ = 0;
  std::vector<GroupRange> groups_;      ///< of the trainable part, without gaps
  std::shared_ptr<FlatMemory> memory_;  ///< known to the tensors too
};

}  // namespace lockstep
