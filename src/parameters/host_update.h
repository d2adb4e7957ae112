// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <span>

#include "core/event.h"
#include "parameters/parameter_space.h"

namespace lockstep {

/// An update of values that lie on the host while gradients, and what operations read, lie on a GPU. Both
/// travel in pieces through two pairs of pinned buffers, in a queue of their own, so that the next piece
/// arrives while one is updated.
///
/// The floor is what crosses the bus: 4 bytes of gradients down, 4 or 2 of copies up, for each element.
class HostUpdate {
 public:
  /// Keeps a reference. A piece has 4 MiB of values: enough for a bus, and little beside a model.
  explicit HostUpdate(ParameterSpace& space, int64_t piece_elements = int64_t{1} << 20);

  /// Updates a piece on the CPU: `gradients` hold it, and `copies`, unless they are empty, take it.
  using Apply = std::function<void(std::span<const Range> piece, const FlatBuffer& gradients,
                                   const FlatBuffer& copies)>;
  /// Calls `apply` for one piece after another until all ranges are done. The host waits for gradients; what
  /// is queued on the space's stream from then on reads new copies.
  void run(std::span<const Range> ranges, const Apply& apply);

 private:
  struct Stage {
    Tensor gradients, copies;  ///< pinned
    Event arrived;             ///< the gradients
    Event sent;                ///< the copies
  };

  void fetch(const Placement& piece, Stage& stage);
  void send(const Placement& piece, Stage& stage);

  ParameterSpace& space_;
  int64_t piece_elements_;
  Stream travel_;
  std::array<Stage, 2> stages_;
  Event written_;  ///< by the gradients' stream
};

}  // namespace lockstep
