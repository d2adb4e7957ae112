// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/cached_attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "lockstep/core/memory.h"
#include "lockstep/kernels/cpu/attention_strip.h"
#include "lockstep/kernels/cpu/gemm_vector.h"

namespace lockstep {
namespace {

constexpr int64_t panel = CachedAttention::panel;

/// Fewest multiply-adds that are worth waking a thread.
constexpr int64_t least_work = int64_t{1} << 15;

template <class T, class S>
[[gnu::always_inline]] inline gemm::Vector<T> load_widened(const S* source) {
  if constexpr (std::same_as<T, S>) {
    return gemm::load<gemm::Vector<T>>(source);
  } else {
    T wide[gemm::vector_lanes<T>];
    for (int64_t lane = 0; lane < gemm::vector_lanes<T>; ++lane) wide[lane] = static_cast<T>(source[lane]);
    return gemm::load<gemm::Vector<T>>(wide);
  }
}

/// sums[i] = left . column i of `groups` groups of sixteen columns. In a group rows are row_stride apart.
/// Chains and blocks are those of a product (gemm.h).
template <size_t groups, class T, class S>
void multiply_groups(T* sums, const T* left, const S* right, int64_t row_stride, int64_t group_stride,
                     int64_t depth) {
  constexpr size_t vectors = panel / gemm::vector_lanes<T>;
  for (int64_t begin = 0; begin < std::max<int64_t>(depth, 1); begin += gemm::depth_block) {
    const int64_t end = std::min(begin + gemm::depth_block, depth);
    gemm::Vector<T> block[groups * vectors] = {};
    for (int64_t d = begin; d < end; ++d) {
      const gemm::Vector<T> a = gemm::broadcast(left[d]);
      gemm::unroll<groups * vectors>([&](auto i) {
        const S* column = right + i / vectors * group_stride + i % vectors * gemm::vector_lanes<T>;
        block[i] = gemm::fused_multiply_add<T>(a, load_widened<T>(column + d * row_stride), block[i]);
      });
    }
    gemm::unroll<groups * vectors>([&](auto i) {
      T* target = sums + i * gemm::vector_lanes<T>;
      gemm::store(target, begin == 0 ? block[i] : gemm::load<gemm::Vector<T>>(target) + block[i]);
    });
  }
}

template <class T, class S>
void multiply_columns(T* sums, const T* left, const S* right, int64_t row_stride, int64_t group_stride,
                      int64_t columns, int64_t depth) {
  int64_t column = 0;
  for (; column + 4 * panel <= columns; column += 4 * panel, right += 4 * group_stride)
    multiply_groups<4>(sums + column, left, right, row_stride, group_stride, depth);
  for (; column < columns; column += panel, right += group_stride)
    multiply_groups<1>(sums + column, left, right, row_stride, group_stride, depth);
}

/// weights = exp(scale * (scores - their maximum)) for the first `count`, and 0 in the rest of their last
/// panel. Returns the sum, added in the order of attention.cpp.
template <class T>
T exponentiate(T* weights, int64_t count, T scale) {
  T largest[panel];
  const int64_t end = round_up(count, panel);
  std::fill(weights + count, weights + end, -std::numeric_limits<T>::infinity());
  std::copy_n(weights, panel, largest);
  for (int64_t i = panel; i < end; i += panel)
    for (int64_t lane = 0; lane < panel; ++lane)
      largest[lane] = weights[i + lane] > largest[lane] ? weights[i + lane] : largest[lane];
  const T top = *std::max_element(largest, largest + panel);
  for (int64_t i = 0; i < end; ++i) weights[i] = attention::exponential((weights[i] - top) * scale);
  std::fill(weights + count, weights + end, T{0});
  T sum{0};
  for (int64_t i = 0; i < end; i += 4)
    sum += (weights[i] + weights[i + 1]) + (weights[i + 2] + weights[i + 3]);
  return sum;
}

template <class S>
class CachedHeads {
 public:
  using T = Compute<S>;

  explicit CachedHeads(const CachedAttention& kernel)
      : kernel_(kernel),
        size_(kernel.size()),
        padded_size_(kernel.values.shape[3]),
        q_(kernel.qkv.q.as<S>()),
        k_(kernel.qkv.k.as<S>()),
        v_(kernel.qkv.v.as<S>()),
        places_(kernel.places.as<int32_t>()) {}

  /// Stores the key and the value of a token for later tokens. `head` is one of the keys'.
  void put(int64_t token, int64_t head) const {
    const S* key = k_ + token * kernel_.qkv.k.stride + head * size_;
    const S* value = v_ + token * kernel_.qkv.v.stride + head * size_;
    const int64_t position = places_[2 * token + 1];
    S* keys = keys_of(token, head) + position / panel * size_ * panel + position % panel;
    for (int64_t d = 0; d < size_; ++d) keys[d * panel] = key[d];
    S* values = values_of(token, head) + position * padded_size_;
    std::copy_n(value, size_, values);
    std::fill(values + size_, values + padded_size_, S{});
  }

  int64_t scratch_size() const { return round_up(kernel_.capacity() + size_ + padded_size_, panel); }

  /// Computes y of a token. `head` is one of the queries'.
  void attend(int64_t token, int64_t head, T* scratch) const {
    const int64_t key_head = head / kernel_.heads.group();
    T* weights = scratch;
    T* output = weights + kernel_.capacity();
    T* query = output + padded_size_;
    const int64_t count = places_[2 * token + 1] + 1;
    convert_values(q_ + token * kernel_.qkv.q.stride + head * size_, size_, query);
    // In attention.cpp subnormal numbers may count as zero in the scores. No exponential differs because of
    // that.
    multiply_columns(weights, query, keys_of(token, key_head), panel, size_ * panel, round_up(count, panel),
                     size_);
    const T sum = exponentiate(weights, count, static_cast<T>(1 / std::sqrt(static_cast<double>(size_))));
    multiply_columns(output, weights, values_of(token, key_head), padded_size_, panel, padded_size_, count);
    for (int64_t d = 0; d < size_; ++d) output[d] = attention::with_positive_zero(output[d]) / sum;
    convert_values(output, size_, kernel_.y.as<S>() + (token * kernel_.heads.queries + head) * size_);
  }

 private:
  int64_t plane(int64_t token, int64_t head) const { return places_[2 * token] * kernel_.heads.keys + head; }
  S* keys_of(int64_t token, int64_t head) const {
    return kernel_.keys.as<S>() + plane(token, head) * kernel_.capacity() * size_;
  }
  S* values_of(int64_t token, int64_t head) const {
    return kernel_.values.as<S>() + plane(token, head) * kernel_.capacity() * padded_size_;
  }

  const CachedAttention& kernel_;
  int64_t size_, padded_size_;
  const S *q_, *k_, *v_;
  const int32_t* places_;
};

/// Returns the number of heads of tokens that a thread takes at a time.
int64_t attended_at_once(const CachedAttention& kernel) {
  return std::max<int64_t>(1,
                           least_work / std::max<int64_t>(1, 2 * kernel.capacity() * kernel.values.shape[3]));
}

int64_t workers(const CpuStream& stream, const CachedAttention& kernel) {
  const int64_t at_once = attended_at_once(kernel);
  return std::min<int64_t>(stream.pool->size(),
                           (kernel.tokens() * kernel.heads.queries + at_once - 1) / at_once);
}

void expect_places(const CachedAttention& kernel) {
  const int32_t* place = kernel.places.as<int32_t>();
  for (int64_t token = 0; token < kernel.tokens(); ++token)
    expect(place[2 * token] >= 0 && place[2 * token] < kernel.values.shape[0] && place[2 * token + 1] >= 0 &&
               place[2 * token + 1] < kernel.capacity(),
           "position ", place[2 * token + 1], " of text ", place[2 * token], " is outside the cache of ",
           kernel.values.shape[0], " texts of ", kernel.capacity(), " tokens");
}

}  // namespace

int64_t scratch_bytes(CpuStream stream, const CachedAttention& kernel) {
  return with_float_type(kernel.y.dtype, [&]<class S>() -> int64_t {
    return workers(stream, kernel) * CachedHeads<S>(kernel).scratch_size() *
           static_cast<int64_t>(sizeof(Compute<S>));
  });
}

void run(CpuStream stream, const CachedAttention& kernel) {
  expect_places(kernel);
  const int64_t tokens = kernel.tokens();
  if (kernel.y.size() == 0) return;
  with_float_type(kernel.y.dtype, [&]<class S>() {
    const CachedHeads<S> heads(kernel);
    stream.for_each_chunk(tokens * kernel.heads.keys, elementwise_grain / (2 * kernel.size()),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t item = begin; item < end; ++item)
                              heads.put(item % tokens, item / tokens);
                          });
    const auto memory = allocate_scratch(stream, kernel);
    const int64_t at_once = attended_at_once(kernel);
    // The tokens of a head and the heads of a group follow each other, so that the keys and values that they
    // read stay in the cache.
    const int64_t items = tokens * kernel.heads.queries;
    std::atomic<int64_t> next{0};
    stream.pool->run(workers(stream, kernel), [&](int64_t worker) {
      auto* scratch = reinterpret_cast<Compute<S>*>(memory.get()) + worker * heads.scratch_size();
      for (int64_t begin = next.fetch_add(at_once); begin < items; begin = next.fetch_add(at_once))
        for (int64_t item = begin; item < std::min(items, begin + at_once); ++item)
          heads.attend(item % tokens, item / tokens, scratch);
    });
  });
}

}  // namespace lockstep
