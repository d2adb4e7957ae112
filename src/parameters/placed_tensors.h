// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "parameters/optimizer.h"
#include "parameters/parameter_space.h"

namespace lockstep {

/// The tensors of a run in flat buffers, of which each rank holds everything or some ranges: what a snapshot
/// is made of, and what it is read into. Who else keeps parts of a model on each rank derives from it.
class PlacedTensors {
 public:
  /// A tensor of the model: its place in every buffer that reaches so far.
  struct Entry {
    std::string name;
    Shape shape;
    Range place;
  };
  struct Buffer {
    std::string state;  ///< empty: the model's values; else what an optimizer keeps of each: "exp_avg"
    DType dtype = DType::f32;
    int64_t elements = 0;
    Ownership held = {};  ///< [rank]: each in order, cut at multiples of `block`, all of it together
  };
  /// A snapshot's checksums are made of those of such blocks, so that each is some rank's own.
  static constexpr int64_t block = ParameterSpace::block;

  virtual ~PlacedTensors() = default;

  /// In the order in which files have them.
  const std::vector<Entry>& tensors() const { return tensors_; }
  /// The values, then the states. Ranks are those of the world that writes and reads.
  const std::vector<Buffer>& buffers() const { return buffers_; }

  /// Copies elements of one tensor, which this rank holds, to or from the host's memory.
  virtual void get(size_t buffer, Range range, std::byte* to) const = 0;
  virtual void set(size_t buffer, Range range, const std::byte* from) = 0;

 protected:
  std::vector<Entry> tensors_;
  std::vector<Buffer> buffers_;
};

/// A parameter space and what its optimizer keeps, of which each rank holds something: a run with
/// DataParallel, or one rank alone.
class SpaceTensors : public PlacedTensors {
 public:
  /// Keeps references. `optimizer` may be null. `values` and `states` say what each rank holds.
  SpaceTensors(const ParameterSpace& space, Optimizer* optimizer, const Ownership& values,
               const Ownership& states);
  /// The same where each rank holds all values, and the states of its segments.
  SpaceTensors(const ParameterSpace& space, Optimizer* optimizer, int ranks);

  void get(size_t buffer, Range range, std::byte* to) const override;
  void set(size_t buffer, Range range, const std::byte* from) override;

 private:
  const FlatBuffer& flat(size_t buffer) const;

  const ParameterSpace& space_;
  Optimizer* optimizer_;
};

}  // namespace lockstep
