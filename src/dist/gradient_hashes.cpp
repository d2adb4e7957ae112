// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/gradient_hashes.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "lockstep/core/hash.h"
#include "lockstep/core/memory.h"
#include "lockstep/kernels/arithmetic.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"

namespace lockstep::detail {
namespace {

constexpr uint32_t quiet_nan = 0x7fc00000U;

bool is_nan(uint32_t bits) { return (bits & 0x7fffffffU) > 0x7f800000U; }

uint64_t hash_of_words(std::span<const uint32_t> words) {
  return hash_of({reinterpret_cast<const char*>(words.data()), words.size_bytes()});
}

/// Returns the elements of a block as bits, with one NaN for all. `memory` is used if there is a NaN.
std::span<const uint32_t> bits_of(const float* values, int64_t count, std::vector<uint32_t>& memory) {
  const auto* const bits = reinterpret_cast<const uint32_t*>(values);
  uint32_t has_nan = 0;
  for (int64_t i = 0; i < count; ++i) has_nan |= static_cast<uint32_t>(is_nan(bits[i]));
  if (has_nan == 0) return {bits, static_cast<size_t>(count)};
  memory.assign(bits, bits + count);
  std::ranges::replace_if(memory, is_nan, quiet_nan);
  return memory;
}

}  // namespace

GradientHashes::GradientHashes(const ParameterLayout& layout) : first_{0} {
  for (const Parameter& parameter : layout.parameters()) {
    const int64_t elements = parameter.is_frozen ? 0 : parameter.place.size();
    first_.push_back(first_.back() + (elements + GradientBlock::elements - 1) / GradientBlock::elements);
  }
  blocks_.resize(static_cast<size_t>(first_.back()));
}

void GradientHashes::add(size_t parameter, const Tensor& gradient) {
  const Tensor on_host = to_stream(gradient, cpu_stream());
  const auto* const values = static_cast<const float*>(on_host.view().data);
  std::vector<uint32_t> memory;
  order_.push_back(parameter);
  for (int64_t begin = 0, block = 0; begin < on_host.size(); begin += GradientBlock::elements, ++block) {
    const int64_t count = std::min(GradientBlock::elements, on_host.size() - begin);
    const std::span<const uint32_t> bits = bits_of(values + begin, count, memory);
    blocks_[static_cast<size_t>(first_[parameter] + block)] = hash_of_words(bits);
    if (!kept_block_ || kept_block_->parameter != static_cast<int64_t>(parameter) ||
        kept_block_->index != block)
      continue;
    kept_.assign(bits.begin(), bits.end());
    kept_.resize(static_cast<size_t>(GradientBlock::elements));
  }
}

uint64_t GradientHashes::value() const {
  return hash_of({reinterpret_cast<const char*>(blocks_.data()), blocks_.size() * sizeof(uint64_t)});
}

GradientBlock GradientHashes::first_difference(const std::vector<uint64_t>& others) const {
  for (const size_t parameter : order_)
    for (int64_t block = first_[parameter]; block < first_[parameter + 1]; ++block)
      if (blocks_[static_cast<size_t>(block)] != others[static_cast<size_t>(block)])
        return {static_cast<int64_t>(parameter), block - first_[parameter]};
  return {};
}

HashedBackward::HashedBackward(const ParameterLayout& layout, GradientHashes& hashes, Then then)
    : layout_(layout), hashes_(hashes), then_(then), leaves_(layout.parameters().size()) {
  for (size_t p = 0; p < leaves_.size(); ++p) {
    if (layout.parameters()[p].is_frozen) continue;
    LeafGradient& leaf = leaf_gradient(layout.parameters()[p].tensor);
    leaves_[p].begin = std::exchange(leaf.begin, [this, p] { begin(p); });
    leaves_[p].ready = std::exchange(leaf.ready, [this, p] { ready(p); });
    if (then == Then::pass_on) continue;
    leaves_[p].buffer = std::exchange(leaf.buffer, {});
    leaves_[p].accumulate = std::exchange(leaf.accumulate, false);
  }
}

HashedBackward::~HashedBackward() {
  for (size_t p = 0; p < leaves_.size(); ++p) {
    if (layout_.parameters()[p].is_frozen) continue;
    LeafGradient& leaf = leaf_gradient(layout_.parameters()[p].tensor);
    leaf.begin = std::move(leaves_[p].begin);
    leaf.ready = std::move(leaves_[p].ready);
    if (then_ == Then::pass_on) continue;
    leaf.buffer = leaves_[p].buffer;
    leaf.accumulate = leaves_[p].accumulate;
  }
}

/// Gives the leaf memory of its own if its gradient is dropped, or would be added to a sum.
void HashedBackward::begin(size_t parameter) {
  const Tensor& tensor = layout_.parameters()[parameter].tensor;
  LeafGradient& leaf = leaf_gradient(tensor);
  const MemoryScope scope("gradients");
  if (then_ == Then::drop) {
    if (!leaf.buffer) leaf.buffer = empty(tensor.shape(), DType::f32, layout_.stream());
  } else if (leaves_[parameter].begin) {
    leaves_[parameter].begin();
  } else if (leaf.accumulate) {
    leaves_[parameter].sum = std::exchange(leaf.buffer, empty(tensor.shape(), DType::f32, layout_.stream()));
    leaf.accumulate = false;
  }
}

void HashedBackward::ready(size_t parameter) {
  LeafGradient& leaf = leaf_gradient(layout_.parameters()[parameter].tensor);
  hashes_.add(parameter, leaf.buffer);
  if (then_ == Then::drop) {
    leaf.buffer = {};
    return;
  }
  if (const Tensor sum = std::exchange(leaves_[parameter].sum, {})) {
    launch(layout_.stream(), Add{.a = sum.view(), .b = leaf.buffer.view(), .y = sum.view()});
    leaf.buffer = sum;
    leaf.accumulate = true;
  }
  leaves_[parameter].ready();
}

}  // namespace lockstep::detail
