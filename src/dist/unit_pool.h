// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/core/stream.h"
#include "lockstep/movement/movement.h"
#include "lockstep/movement/sharding.h"

namespace lockstep {

namespace detail {

/// A pool of three buffers for the values of a sharded model. A unit is gathered when an operation first
/// reads it. It takes the smallest buffer that is large enough, and of equal ones the least recently found.
///
/// All ranks of a group gather together, in the same order. So all must run the same operations between
/// open() and close().
class UnitPool {
 public:
  static constexpr size_t buffer_count = 3;

  /// Keeps references to the space and the movement. `movement` connects the ranks of the sharding.
  UnitPool(ParameterSpace& space, const Sharding& sharding, Movement& movement, int rank);
  ~UnitPool();
  UnitPool(const UnitPool&) = delete;
  UnitPool& operator=(const UnitPool&) = delete;

  /// Starts a pass, in which all ranks run the same operations until close(). Values do not change in it.
  void open() {
    if (!std::exchange(is_open_, true)) is_settled_ = false;
  }
  /// Ends the pass and forgets the gathered units.
  void close();

  /// Returns the address of the values in a buffer. Throws Error outside of a pass. Throws Error for an
  /// operation that reads more units at once than there are buffers.
  std::byte* find(Range place, DType dtype);

 private:
  struct Buffer {
    int64_t elements = 0;  ///< size of one of the largest units
    std::shared_ptr<Storage> memory = {};
    int unit = -1;
    int64_t used_at = -1;      ///< `finds_` when it was last found or gathered, else -1
    uint64_t launches = 0;     ///< kernels launched by then
    bool is_arriving = false;  ///< a queue writes it until the event `arrived`
    Event arrived = {};
  };

  Buffer* find_buffer(int unit);
  Buffer* gather(int unit);
  Buffer* buffer_for(int64_t elements);
  void gather_ahead(int unit);

  ParameterSpace& space_;
  Movement& movement_;
  std::vector<TransferPlan> transfers_;  ///< [unit], the gather from the ranks' shards
  std::array<Buffer, buffer_count> buffers_;
  int64_t finds_ = 0;
  bool is_open_ = false;
  bool is_settled_ = false;  ///< ranks have met since values last changed
  std::vector<int> order_;   ///< units in the order of this pass
  std::vector<int> last_order_;
};

}  // namespace detail

using detail::UnitPool;

}  // namespace lockstep
