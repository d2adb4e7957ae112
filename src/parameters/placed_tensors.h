// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/parameters/optimizer.h"
#include "lockstep/parameters/parameter_space.h"

namespace lockstep {

/// The tensors of a run in flat buffers, which a snapshot writes and reads. Each rank holds all or some
/// ranges of a buffer. A class that distributes a model in another way derives from it.
class PlacedTensors {
 public:
  /// A tensor of the model and its place, which is the same in every buffer that is long enough.
  struct Entry {
    std::string name;
    Shape shape;
    Range place;
  };
  struct Buffer {
    std::string state;  ///< empty: the model's values; otherwise an optimizer state: "exp_avg"
    DType dtype = DType::f32;
    int64_t elements = 0;
    Ownership held = {};  ///< [rank], in order, cut at multiples of `block`; together the whole buffer
  };
  /// Elements of a block. It belongs to one rank: a snapshot's checksums are made of those of blocks.
  static constexpr int64_t block = ParameterLayout::block;

  virtual ~PlacedTensors() = default;

  /// Returns the tensors in the order in which files have them.
  const std::vector<Entry>& tensors() const { return tensors_; }
  /// Returns the buffers of values, then of states. Ranks are those of the world that writes and reads.
  const std::vector<Buffer>& buffers() const { return buffers_; }

  /// Copies elements of one tensor, which this rank holds, to or from host memory.
  virtual void get(size_t buffer, Range range, std::byte* to) const = 0;
  virtual void set(size_t buffer, Range range, const std::byte* from) = 0;

 protected:
  std::vector<Entry> tensors_;
  std::vector<Buffer> buffers_;
};

/// The tensors of a space and its optimizer, of which each rank holds a part: with DataParallel or alone.
class SpaceTensors : public PlacedTensors {
 public:
  /// Keeps references. `optimizer` may be null. `values` and `states` are the ranges that each rank holds.
  SpaceTensors(const ParameterSpace& space, Optimizer* optimizer, const Ownership& values,
               const Ownership& states);
  /// Describes ranks that hold all values and the states of their owned ranges.
  SpaceTensors(const ParameterSpace& space, Optimizer* optimizer, int ranks);

  void get(size_t buffer, Range range, std::byte* to) const override;
  void set(size_t buffer, Range range, const std::byte* from) override;

 private:
  const FlatBuffer& flat(size_t buffer) const;

  const ParameterSpace& space_;
  Optimizer* optimizer_;
};

}  // namespace lockstep
