// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/spans.h"

#include <utility>

namespace lockstep {
namespace {

/// Bounds the memory: a step of many micro-batches and buckets has some thousand spans.
constexpr size_t most_spans = 100'000;

}  // namespace

SpanRecorder& SpanRecorder::of_process() {
  static SpanRecorder recorder;
  return recorder;
}

void SpanRecorder::start() {
  const std::lock_guard lock(mutex_);
  spans_.clear();
  is_on_ = true;
}

std::vector<Span> SpanRecorder::stop() {
  const std::lock_guard lock(mutex_);
  is_on_ = false;
  return std::exchange(spans_, {});
}

void SpanRecorder::add(const Span& span) {
  const std::lock_guard lock(mutex_);
  if (is_on_ && spans_.size() < most_spans) spans_.push_back(span);
}

}  // namespace lockstep
