// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <span>

#include "lockstep/core/stream.h"
#include "lockstep/parameters/parameter_space.h"

namespace lockstep {

namespace detail {

/// An update of values on the host, while gradients and the copies that operations read are on a GPU. Both
/// are transferred in pieces through two pairs of pinned buffers, in a queue of their own. So the next piece
/// arrives while one is updated.
///
/// The lower bound is the bus traffic for each element: 4 bytes of gradients down, 4 or 2 bytes of copies up.
class HostUpdate {
 public:
  /// Keeps a reference to the space. By default a piece has 4 MiB: large for a bus, small for a model.
  explicit HostUpdate(ParameterSpace& space, int64_t piece_elements = int64_t{1} << 20);

  /// Updates a piece on the CPU from `gradients`. Writes the new values to `copies` unless that is empty.
  using Apply = std::function<void(std::span<const Range> piece, const FlatBuffer& gradients,
                                   const FlatBuffer& copies)>;
  /// Calls `apply` for one piece after another until all ranges are done. The host waits for gradients. Work
  /// that is queued on the space's stream from then on reads the new copies.
  void run(std::span<const Range> ranges, const Apply& apply);

 private:
  struct Stage {
    Tensor gradients, copies;  ///< pinned
    Event arrived;             ///< the gradients are on the host
    Event sent;                ///< the copies are on the GPU
  };

  void fetch(const Placement& piece, Stage& stage);
  void send(const Placement& piece, Stage& stage);

  ParameterSpace& space_;
  int64_t piece_elements_;
  Stream travel_;
  std::array<Stage, 2> stages_;
  Event written_;  ///< end of the writes on the gradients' stream
};

}  // namespace detail

using detail::HostUpdate;

}  // namespace lockstep
