// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/gradient_audit.h"

#include <algorithm>
#include <utility>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/core/error.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/process.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/tensor_state.h"

namespace lockstep::detail {

GradientAudit::GradientAudit(const ParameterSpace& space, DataParallel& data_parallel, const World& world,
                             int64_t every, int accumulate, Record record)
    : space_(space),
      data_parallel_(data_parallel),
      communicator_(world.communicator()),
      plan_{.every = every,
            .replicas = data_parallel.total_replicas(),
            .accumulate = accumulate,
            .ranks = world.size(),
            .execution =
                data_parallel.setup.sharding.cuts_gradients() ? Execution::interleaved : Execution::ranges},
      record_(std::move(record)) {}

bool GradientAudit::begin(int64_t step, bool is_loaded) {
  step_ = step;
  done_ = 0;
  hashes_.reset();
  work_ = is_loaded ? plan_.of_step(step) : std::nullopt;
  return work_.has_value();
}

/// Returns whether the next micro-batch of this rank is the audited one.
bool GradientAudit::is_mine() const {
  return work_ && done_ < data_parallel_.setup.micro_batches.size() &&
         data_parallel_.setup.micro_batches[done_] == work_->micro_batch;
}

void GradientAudit::backward(const Tensor& loss) {
  std::optional<HashedBackward> hashed;
  if (is_mine()) hashed.emplace(space_.layout, hashes_.emplace(space_.layout), HashedBackward::Then::pass_on);
  ++done_;
  data_parallel_.backward(loss);
}

void GradientAudit::compute(const Loss& loss, GradientHashes& hashes) const {
  const Tensor made = loss();
  const MemoryScope scope("backward");
  const TrainedSpace trained(space_.memory());
  const HashedBackward hashed(space_.layout, hashes, HashedBackward::Then::drop);
  const double factor = 1.0 / plan_.accumulate;
  if (const GradScaler* scaler = data_parallel_.setup.scaler)
    lockstep::backward(made, factor, scaler->scale());
  else
    lockstep::backward(made, factor);
}

void GradientAudit::compute_again(const Loss& loss) {
  if (!work_) return;
  if (communicator_.rank() == work_->auditor) return compute(loss, hashes_.emplace(space_.layout));
  if (!data_parallel_.setup.sharding.cuts_reads()) return;
  GradientHashes ignored(space_.layout);
  compute(loss, ignored);
}

void GradientAudit::compare(const Loss& loss) {
  if (!work_) return;
  const AuditedHash mine{.is_there = hashes_.has_value(), .value = hashes_ ? hashes_->value() : 0};
  const std::vector<AuditedHash> first = communicator_.all_gather_value(mine);
  const AuditedHash& owner = first[static_cast<size_t>(work_->owner)];
  const AuditedHash& auditor = first[static_cast<size_t>(work_->auditor)];
  expect(owner.is_there && auditor.is_there, "step ", step_ + 1,
         ": the audited micro-batch was not computed");
  if (owner.value == auditor.value) return;
  const AuditFinding finding = find(first, loss);
  if (finding.verdict.is_certain && std::ranges::count(finding.verdict.wrong, communicator_.rank()) > 0)
    heartbeat().computed_wrong.store(true);
  if (record_) record_(finding.step, finding.facts());
  throw Error(finding.message());
}

/// Computes the micro-batch again on all ranks and finds what differs.
AuditFinding GradientAudit::find(const std::vector<AuditedHash>& first, const Loss& loss) const {
  const int rank = communicator_.rank();
  GradientHashes again(space_.layout);
  std::vector<uint64_t> theirs = rank == work_->auditor ? hashes_->blocks() : again.blocks();
  communicator_.broadcast(theirs.data(), std::ssize(theirs) * 8, work_->auditor);
  const GradientBlock block = communicator_.broadcast_value(
      rank == work_->owner ? hashes_->first_difference(theirs) : GradientBlock{}, work_->owner);
  again.keep(block);
  compute(loss, again);
  const std::vector<uint64_t> second = communicator_.all_gather_value(again.value());
  const auto elements = static_cast<size_t>(GradientBlock::elements);
  std::vector<uint32_t> all(elements * second.size());
  communicator_.all_gather(again.kept().data(), GradientBlock::elements * 4, all.data());
  const Parameter& parameter = space_.layout.parameters()[static_cast<size_t>(block.parameter)];
  AuditFinding finding{.step = step_ + 1,
                       .micro_batch = work_->micro_batch,
                       .verdict = judge(first, second, work_->owner, work_->auditor),
                       .hosts = communicator_.all_gather_text(host_name()),
                       .parameter = parameter.name,
                       .shape = parameter.tensor.shape(),
                       .block = block,
                       .bits = {}};
  for (size_t r = 0; r < second.size(); ++r)
    finding.bits.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(r * elements),
                              all.begin() + static_cast<std::ptrdiff_t>((r + 1) * elements));
  return finding;
}

}  // namespace lockstep::detail
