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
/// reads them, into three buffers that are used in turn.
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
  bool is_open() const { return is_open_; }

  /// Throws Error where ranks do not run together, and for an operation that reads more units at once than
  /// there are buffers.
  std::byte* find(Range place, DType dtype) override;

 private:
  struct Buffer {
    std::shared_ptr<Storage> memory = {};
    int unit = -1;
    DType dtype = DType::f32;
    int64_t used_at = -1;      ///< the number of finds before it was last found
    uint64_t launches = 0;     ///< of kernels before that
    bool is_arriving = false;  ///< in a queue, up to the event
    Event arrived = {};
  };

  Buffer* find_buffer(int unit, DType dtype);
  Buffer* gather(int unit, DType dtype);
  Buffer* buffer_for(int64_t elements);

  ParameterSpace& space_;
  Movement& movement_;
  std::vector<Transfer> transfers_;  ///< [unit], from the ranks' shards
  std::array<Buffer, buffer_count> buffers_;
  std::array<int64_t, buffer_count> sizes_;  ///< of the largest units, in elements
  int64_t finds_ = 0;
  bool is_open_ = false;
  bool is_settled_ = false;  ///< ranks have met since values last changed
  // What came after what in the last pass, so that it can be brought ahead where copies run beside kernels.
  struct Key {
    int unit;
    DType dtype;
    bool operator==(const Key&) const = default;
  };
  std::vector<Key> order_, last_order_;
};

}  // namespace lockstep
