// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/audit_verdict.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/tensor/print.h"

namespace lockstep::detail {
namespace {

/// Returns the value that more than half of the ranks have.
std::optional<uint64_t> majority(const std::vector<uint64_t>& values) {
  for (const uint64_t value : values)
    if (2 * std::ranges::count(values, value) > std::ssize(values)) return value;
  return std::nullopt;
}

/// Returns 32 bits as "0x3c8a1f02".
std::string hex(uint32_t bits) { return "0x" + hexadecimal(bits, 8); }

}  // namespace

AuditVerdict judge(const std::vector<AuditedHash>& first, const std::vector<uint64_t>& second, int owner,
                   int other) {
  const std::optional<uint64_t> agreed = majority(second);
  AuditVerdict verdict;
  verdict.is_certain = true;
  for (size_t rank = 0; rank < second.size(); ++rank) {
    const bool is_repeated = !first[rank].is_there || first[rank].value == second[rank];
    if (is_repeated && (!agreed || second[rank] == *agreed)) {
      if (verdict.right < 0) verdict.right = static_cast<int>(rank);
      continue;
    }
    verdict.wrong.push_back(static_cast<int>(rank));
    verdict.is_repeated &= is_repeated;
  }
  if (!verdict.wrong.empty()) return verdict;
  verdict.is_certain = false;
  verdict.wrong = {std::min(owner, other), std::max(owner, other)};
  verdict.right = verdict.wrong[1];
  return verdict;
}

std::optional<size_t> AuditFinding::element() const {
  if (verdict.right < 0) return std::nullopt;
  const auto& wrong = bits[static_cast<size_t>(verdict.wrong[0])];
  const auto& right = bits[static_cast<size_t>(verdict.right)];
  const auto found = std::ranges::mismatch(wrong, right).in1;
  if (found == wrong.end()) return std::nullopt;
  return static_cast<size_t>(found - wrong.begin());
}

/// Returns "rank 2 on host b", joined by "and" or, for a pair, by "or".
std::string AuditFinding::names() const {
  std::string text;
  for (const int rank : verdict.wrong)
    text += concat(text.empty()         ? ""
                   : verdict.is_certain ? " and "
                                        : " or ",
                   "rank ", rank, " on host ", hosts[static_cast<size_t>(rank)]);
  return text;
}

/// Returns the element that differs, or the elements among which it is.
std::string AuditFinding::place() const {
  const int64_t begin = block.index * GradientBlock::elements;
  if (const auto at = element())
    return concat("element ", coordinates(begin + static_cast<int64_t>(*at), shape));
  const int64_t end = std::min(begin + GradientBlock::elements, shape.elements());
  return concat("among elements ", coordinates(begin, shape), " to ", coordinates(end - 1, shape));
}

std::string AuditFinding::values(size_t at) const {
  const int wrong = verdict.wrong[0];
  return concat(hex(bits[static_cast<size_t>(wrong)][at]), " on rank ", wrong, ", ",
                hex(bits[static_cast<size_t>(verdict.right)][at]), " on rank ", verdict.right);
}

std::string AuditFinding::message() const {
  const auto at = element();
  const char* const times = !verdict.is_certain   ? ""
                            : verdict.is_repeated ? " The fault repeated when they were computed again."
                                                  : " It computed others when they were computed again.";
  const std::string advice =
      verdict.is_certain
          ? concat("Take host ", hosts[static_cast<size_t>(verdict.wrong[0])],
                   " out of service: its processor or its memory is faulty")
          : "Two ranks cannot tell which of them is wrong: test both hosts, or start at least three ranks";
  return concat("step ", step, ": ", names(), " computed wrong gradients: replica ", micro_batch.replica,
                ", micro-batch ", micro_batch.index, ", parameter ", parameter, ", ", place(),
                at ? concat(": ", values(*at)) : "", ".", times, " The step was not applied. ", advice);
}

std::map<std::string, std::string> AuditFinding::facts() const {
  std::map<std::string, std::string> facts = {{verdict.is_certain ? "wrong" : "one_is_wrong", names()},
                                              {"replica", std::to_string(micro_batch.replica)},
                                              {"micro_batch", std::to_string(micro_batch.index)},
                                              {"parameter", parameter},
                                              {"place", place()},
                                              {"repeats", verdict.is_repeated ? "yes" : "no"}};
  if (const auto at = element()) facts["bits"] = values(*at);
  return facts;
}

}  // namespace lockstep::detail
