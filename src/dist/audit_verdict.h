// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/shape.h"
#include "lockstep/dist/audit_plan.h"
#include "lockstep/dist/gradient_hashes.h"

namespace lockstep::detail {

/// The hash that a rank computed in a step, if it computed the audited micro-batch there.
struct AuditedHash {
  bool is_there = false;
  uint64_t value = 0;
};

/// Which ranks computed wrong.
struct AuditVerdict {
  std::vector<int> wrong;   ///< in order; two ranks of which one is wrong, unless it is certain
  bool is_certain = false;  ///< each of them is wrong
  bool is_repeated = true;  ///< each of them computed the same twice
  int right = -1;           ///< a rank to compare with; -1: none
};

/// Judges the ranks by what they computed in the step and when all of them computed it again. A rank is wrong
/// if its two results differ, or if most ranks have another second result. Otherwise one of two ranks is
/// wrong: `owner` and `other`, whose first results differ.
AuditVerdict judge(const std::vector<AuditedHash>& first, const std::vector<uint64_t>& second, int owner,
                   int other);

/// Facts about an audit that found a difference.
struct AuditFinding {
  int64_t step = 0;  ///< from 1
  MicroBatch micro_batch;
  AuditVerdict verdict;
  std::vector<std::string> hosts;  ///< [rank]
  std::string parameter;
  Shape shape;          ///< of the parameter
  GradientBlock block;  ///< the first that differed in the step
  /// [rank][element of the block], the bits that the rank computed when it computed them again.
  std::vector<std::vector<uint32_t>> bits;

  /// Returns the message of the failure, in one line.
  std::string message() const;
  /// Returns the facts by name, for the events of the run.
  std::map<std::string, std::string> facts() const;

 private:
  /// Returns the first element of the block that differs between the wrong and the right rank.
  std::optional<size_t> element() const;
  std::string names() const;
  std::string place() const;
  std::string values(size_t element) const;
};

}  // namespace lockstep::detail
