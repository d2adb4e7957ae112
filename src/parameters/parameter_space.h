// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameters/parameter_layout.h"
#include "lockstep/tensor/parameter_memory.h"

namespace lockstep {

/// A function that returns the address of values which a rank does not keep, as ParameterMemory::find() does.
using Residency = std::function<std::byte*(Range place, DType dtype)>;

/// How a ParameterSpace is made.
struct SpaceOptions {
  uint64_t seed = 0;                    ///< of initial values that have no seed of their own
  GroupRule group = {};                 ///< how optimizers treat a parameter
  ParameterLayout::UnitRule unit = {};  ///< the unit that a parameter belongs to
};

/// All parameters of a model in one flat space. Every walk over parameters is a walk over it.
///
/// Memory is made at first use, so that DataParallel can place it before. Values, their copies in 16 bits,
/// gradients and an optimizer's states are flat buffers. A rank may hold a part of them.
class ParameterSpace {
  /// The state that a space shares with its tensors. It outlives the space with them.
  struct Memory final : detail::ParameterMemory {
    std::byte* find(Range place, DType dtype) override;
    DType compute_dtype() const override { return precision; }

    const ParameterSpace* space = nullptr;  ///< null once the space is destroyed
    int64_t elements = 0;
    DType precision = DType::f32;          ///< the dtype in which the model computes
    bool keeps_copies = false;             ///< copies exist even in the dtype of the values
    bool may_be_zero = false;              ///< matrices of zeros are allowed
    FlatBuffer values, copies, gradients;  ///< made at first use
    Residency residency;
  };

 public:
  /// Takes over the listed tensors. Throws Error like ParameterLayout.
  explicit ParameterSpace(const std::vector<NamedTensor>& listed, const SpaceOptions& options = {});
  /// Takes over the parameters of a Module.
  template <class Model>
  requires requires(const Model& model) { model.parameters(); }
  explicit ParameterSpace(const Model& model, const SpaceOptions& options = {})
      : ParameterSpace(model.parameters(), options) {}
  ~ParameterSpace();
  ParameterSpace(const ParameterSpace&) = delete;
  ParameterSpace& operator=(const ParameterSpace&) = delete;

  /// Makes copies in a 16-bit dtype, in which the model then computes and to which gradients belong
  /// (Micikevicius et al. 2018). f32 removes them. Optimizers update the f32 values, which snapshots keep.
  void set_precision(DType dtype);
  /// Returns the dtype of set_precision(), or the dtype of the values.
  DType precision() const { return memory_->precision; }

  /// The values of all parameters, which optimizers update.
  class Values {
   public:
    explicit Values(ParameterSpace& space) : space_(space) {}
    /// Returns the values that this rank keeps: all, unless place() has chosen a part.
    const FlatBuffer& operator()() const;
    bool are_whole() const { return (*this)().is_whole(space_.layout.elements()); }
    /// Returns a text that defines how values will be made; empty once they are. Equal texts mean equal
    /// values.
    std::string definition() const;
    /// Writes a range's values to `target`, [range.size()]. This rank keeps them, or they are not made yet.
    void write(Range range, const Tensor& target) const;
    /// Returns whether the start of the training was checked, or needs no check.
    bool is_start_checked() const;
    /// Returns 1 for each parameter that may be trained: one of fewer than two dimensions, one made by
    /// constant_values(0.0), or one of which this rank keeps an element that is not zero. [parameters]
    std::vector<uint8_t> find_numbers() const;
    /// Throws UserError naming a parameter with 0 in find_numbers() of all ranks: a matrix of zeros.
    void expect_no_zero_matrix(const std::vector<uint8_t>& found);
    /// Allows matrices of zeros: the values come from a file.
    void allow_zeros() { space_.memory_->may_be_zero = true; }
    /// Uses `buffer` for the values from now on. It must hold them already. Copies are kept as they are.
    void place(const FlatBuffer& buffer);
    /// Sets the function that provides values which this rank does not keep. It may be empty.
    void set_residency(Residency residency) { space_.memory_->residency = std::move(residency); }
    /// Returns whether values and optimizer states are on the host while the model computes on a GPU.
    bool are_offloaded() const {
      const FlatBuffer& made = space_.memory_->values;
      return made && device_of(made.memory().stream()) != device_of(space_.layout.stream());
    }
    /// Returns the stream on which optimizers work.
    const Stream& update_stream() const { return are_offloaded() ? cpu_stream() : space_.layout.stream(); }

   private:
    ParameterSpace& space_;
  };

  /// The copies of the values that operations read. There are none if operations read the values.
  class Copies {
   public:
    explicit Copies(ParameterSpace& space) : space_(space) {}
    /// Returns the copies that this rank keeps, or an empty buffer.
    const FlatBuffer& operator()() const;
    /// Makes operations read copies, also in the dtype of the values. Values may then be stored elsewhere.
    void keep() { space_.memory_->keeps_copies = true; }
    bool exist() const { return space_.memory_->keeps_copies || space_.precision() != space_.layout.dtype(); }
    void place(const FlatBuffer& buffer);
    /// Updates the copies that this rank keeps, after code other than an optimizer has changed values.
    void refresh() const;

   private:
    ParameterSpace& space_;
  };

  class Gradients {
   public:
    explicit Gradients(ParameterSpace& space) : space_(space) {}
    /// Returns the gradient buffer, which is made if none is bound.
    const FlatBuffer& operator()();
    /// Makes backward() write gradients to `flat`, [trainable_elements()], or add them with `accumulate`.
    void bind(const Tensor& flat, bool accumulate = false);
    /// Sets the buffer of finished gradients of elements that this rank updates. No backward() writes to it.
    void place(const FlatBuffer& buffer) { space_.memory_->gradients = buffer; }
    /// Throws Error naming a trainable parameter that has no gradient.
    void expect_present() const;
    /// Sets whether this rank holds gradients of all elements. If it does not, grad() throws Error.
    void set_whole(bool whole) { space_.memory_->gradients_are_whole = whole; }
    /// Throws Error if the last backward() has left gradients that contain a loss scale.
    void expect_unscaled() const;
    /// Records that the loss scale has been divided out of the gradients.
    void set_unscaled() { space_.memory_->gradients_are_scaled = false; }

   private:
    ParameterSpace& space_;
  };

  /// Returns the memory that the tensors of the space refer to.
  const detail::ParameterMemory* memory() const { return memory_.get(); }

  const ParameterLayout layout;
  Values values{*this};
  Copies copies{*this};
  Gradients gradients{*this};

 private:
  std::shared_ptr<Memory> memory_;  ///< shared with the tensors
};

}  // namespace lockstep
