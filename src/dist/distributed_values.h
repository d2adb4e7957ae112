// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "lockstep/comm/communicator.h"
#include "lockstep/movement/sharding.h"

namespace lockstep {

namespace detail {
class GradientReducer;
class UnitPool;
struct TransferPlan;
}  // namespace detail

/// The values of a model and their 16-bit copies in their final memory. Each rank keeps the parts that a
/// Sharding gives it. All ranks call the same functions in the same order.
class DistributedValues {
 public:
  /// Moves the values. Rank 0 sends its values to the ranks that keep them. Keeps references.
  DistributedValues(ParameterSpace& space, const Sharding& sharding, Offload offload,
                    Communicator& communicator, detail::GradientReducer& reducer);
  ~DistributedValues();
  DistributedValues(const DistributedValues&) = delete;
  DistributedValues& operator=(const DistributedValues&) = delete;

  /// Updates the 16-bit copies after code other than a step has changed the values that ranks keep.
  void refresh_copies();
  /// Gathers the f32 values of a unit of the layout on all ranks. The memory is valid until the next call. It
  /// costs nothing if every rank keeps all values.
  Tensor gather(int unit);

 private:
  friend class DataParallel;
  /// Begins and ends a pass in which operations read values that ranks gather; see detail::UnitPool.
  void open();
  void close();
  /// Sends new values to all ranks that read them.
  void gather_updates();
  FlatBuffer make_buffer(const Ownership& ownership, DType dtype, bool on_host) const;
  void fill_masters(const FlatBuffer& masters) const;
  void broadcast(const Tensor& tensor) const;
  void send(const FlatBuffer& buffer, const detail::TransferPlan& plan) const;

  ParameterSpace& space_;
  const Sharding& sharding_;
  Communicator& communicator_;
  detail::GradientReducer& reducer_;
  std::unique_ptr<detail::UnitPool> units_;  ///< only with full sharding
  std::unique_ptr<detail::TransferPlan> value_plan_, copies_plan_;
  Tensor gathered_;  ///< the result of gather()
};

}  // namespace lockstep
