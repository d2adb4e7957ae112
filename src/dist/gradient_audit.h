// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/dist/audit_plan.h"
#include "lockstep/dist/audit_verdict.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/dist/gradient_hashes.h"

namespace lockstep::detail {

/// Finds a processor that computes wrong. In some steps another rank computes one micro-batch again, and the
/// ranks compare hashes of its gradients before the step is applied. All ranks call:
///
///     audit.begin(step);
///     for (each micro-batch) audit.backward(loss_of(batch));   // instead of DataParallel::backward()
///     audit.compute_again(loss);                               // `loss` makes the loss of the audited one
///     data_parallel.update(optimizer, max_norm, [&] { audit.compare(loss); });
///
/// The bits of a step do not depend on it.
class GradientAudit {
 public:
  using Loss = std::function<Tensor()>;
  /// A function that records a finding, called on all ranks with the number of the step, from 1.
  using Record = std::function<void(int64_t step, const std::map<std::string, std::string>& facts)>;

  /// Audits every `every` steps; 0: never. Keeps references to the space and the DataParallel.
  GradientAudit(const ParameterSpace& space, DataParallel& data_parallel, const World& world, int64_t every,
                int accumulate, Record record);

  const AuditPlan& plan() const { return plan_; }

  /// Begins the step with this index, from 0. Returns whether it is audited, which it is not if
  /// ranks have not loaded the micro-batch.
  bool begin(int64_t step, bool is_loaded = true);
  /// Runs DataParallel::backward() for the next micro-batch of this rank.
  void backward(const Tensor& loss);
  /// Computes the audited micro-batch if this rank is its auditor. If ranks gather values together, all of
  /// them compute it.
  void compute_again(const Loss& loss);
  /// Compares what owner and auditor have computed. If it differs, all ranks compute it again and throw Error
  /// naming the rank, the parameter and the element. Call it when no other communication is in progress.
  void compare(const Loss& loss);

 private:
  bool is_mine() const;
  void compute(const Loss& loss, GradientHashes& hashes) const;
  AuditFinding find(const std::vector<AuditedHash>& first, const Loss& loss) const;

  const ParameterSpace& space_;
  DataParallel& data_parallel_;
  Communicator& communicator_;
  AuditPlan plan_;
  Record record_;
  int64_t step_ = 0;
  std::optional<AuditedWork> work_;       ///< of the current step, if it is audited
  std::optional<GradientHashes> hashes_;  ///< what this rank has computed of it
  size_t done_ = 0;                       ///< micro-batches of this rank in the current step
};

}  // namespace lockstep::detail
