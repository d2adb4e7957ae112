// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/event.h"
#include "dist/movement.h"
#include "dist/sharding.h"

namespace lockstep {

/// The values of a sharded model on their way through operations: units are gathered when an operation first
/// reads them, into three buffers: the smallest that is large enough, of equal ones the one that was found
/// longest ago.
///
/// A gather is something that all ranks of a group do, in the same order: so all must run the same
/// operations, and say when, by open() and close().
class UnitPool final : public Residency {
 public:
  static constexpr size_t buffer_count = 3;

  /// Keeps references to both; `movement` connects the ranks of the sharding.
  UnitPool(ParameterSpace& space, const Sharding& sharding, Movement& movement, int rank);
  ~UnitPool() override;
  UnitPool(const UnitPool&) = delete;
  UnitPool& operator=(const UnitPool&) = delete;

  /// From here to close() all ranks run the same operations. Values stay as they are.
  void open();
  /// What was gathered is forgotten.
  void close();

  /// Throws Error where ranks do not run together, and for an operation that reads more units at once than
  /// there are buffers.
  std::byte* find(Range place, DType dtype) override;

 private:
  struct Buffer {
    int64_t elements = 0;  ///< of one of the largest units
    std::shared_ptr<Storage> memory = {};
    int unit = -1;
    int64_t used_at = -1;      ///< the number of finds before it was last found
    uint64_t launches = 0;     ///< of kernels before that
    bool is_arriving = false;  ///< in a queue, up to the event
    Event arrived = {};
  };

  Buffer* find_buffer(int unit);
  Buffer* gather(int unit);
  Buffer* buffer_for(int64_t elements);
  void gather_ahead(int unit);

  ParameterSpace& space_;
  Movement& movement_;
  std::vector<TransferPlan> transfers_;  ///< [unit], from the ranks' shards
  std::array<Buffer, buffer_count> buffers_;
  int64_t finds_ = 0;
  bool is_open_ = false;
  bool is_settled_ = false;  ///< ranks have met since values last changed
  std::vector<int> order_;   ///< of units, in this pass
  std::vector<int> last_order_;
};

}  // namespace lockstep
