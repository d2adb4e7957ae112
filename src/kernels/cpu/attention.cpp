// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "core/memory.h"
#include "kernels/cpu/attention_strip.h"

namespace lockstep {
namespace attention {
namespace {

template <class T>
class ForwardTask {
 public:
  ForwardTask(Scratch<T>& scratch, int64_t time, int64_t size)
      : keys_(scratch.take(round_up(time, tile_rows) * size)),
        values_(scratch.take(round_up(size, tile_rows) * time)),
        queries_(scratch.take(size * tile_columns<T>)),
        weights_(scratch.take(round_up(time, tile_rows) * tile_columns<T>)),
        output_(scratch.take(round_up(size, tile_rows) * tile_columns<T>)) {}

  void run(const HeadContext& head, int64_t first_query, Rows<T> q, Rows<T> k, Rows<T> v, Rows<T> y,
           T* log_sum_exp) {
    pack_all_rows(keys_, k.as_lanes(), head.time, head.size);
    pack_all_rows(values_, v.as_depth(), head.size, head.time);
    for (int64_t first = first_query; first < head.time; first += width) {
      const QueryBlock<T> block{first, std::min(head.time - first, width)};
      gemm::pack_columns(queries_, q.from(first).as_lanes(), block.count, head.size);
      multiply_visible(weights_, keys_, queries_, block, head.size);
      T sums[width];
      exponentiate(head, block, sums, log_sum_exp + first);
      if (head.dropout > 0) drop(head, block);
      multiply_keys(output_, values_, weights_, block, head.time, head.size);
      for (int64_t d = 0; d < head.size; ++d)
        for (int64_t lane = 0; lane < width; ++lane) output_[d * width + lane] /= sums[lane];
      gemm::unpack_columns(y.from(first).data, y.stride, output_, block.count, head.size);
    }
  }

 private:
  static constexpr int64_t width = tile_columns<T>;

  /// weights = exp(scale * (scores - their maximum)), and the sums of every four weights, added up.
  void exponentiate(const HeadContext& head, const QueryBlock<T>& block, T* sums, T* log_sum_exp) const {
    const T scale = static_cast<T>(head.scale);
    const int64_t end = block.padded_keys() * width;
    T largest[width];
    hide_later_keys(weights_, block, -std::numeric_limits<T>::infinity());
    std::copy_n(weights_, width, largest);
    for (int64_t i = width; i < end; i += width)
      for (int64_t lane = 0; lane < width; ++lane)
        largest[lane] = weights_[i + lane] > largest[lane] ? weights_[i + lane] : largest[lane];
    for (int64_t i = 0; i < end; i += width)
      for (int64_t lane = 0; lane < width; ++lane)
        weights_[i + lane] = exponential((weights_[i + lane] - largest[lane]) * scale);
    hide_later_keys(weights_, block, T{0});
    std::fill_n(sums, width, T{0});
    for (int64_t i = 0; i < end; i += 4 * width)
      for (int64_t lane = 0; lane < width; ++lane) {
        const T* weight = weights_ + i + lane;
        sums[lane] += (weight[0] + weight[width]) + (weight[2 * width] + weight[3 * width]);
      }
    for (int64_t lane = 0; lane < block.count; ++lane)
      log_sum_exp[lane] = std::fma(scale, largest[lane], math::log(sums[lane]));
  }

  void drop(const HeadContext& head, const QueryBlock<T>& block) const {
    DropoutFactors<T> factors(head);
    for (int64_t key = 0; key < block.keys(); ++key) {
      if (key % factors.keys == 0) factors.draw(key, block.first);
      const T* factor = factors.of_key(key);
      for (int64_t lane = 0; lane < width; ++lane) weights_[key * width + lane] *= factor[lane];
    }
  }

  T *keys_, *values_;  // panels
  T *queries_, *weights_, *output_;
};

template <class T>
class BackwardTask {
 public:
  BackwardTask(Scratch<T>& scratch, int64_t time, int64_t size)
      : padded_time_(round_up(time, tile_rows)),
        padded_size_(round_up(size, width)),
        keys_(scratch.take(padded_time_ * size)),
        keys_by_time_(scratch.take(round_up(size, tile_rows) * time)),
        values_(scratch.take(padded_time_ * size)),
        queries_(scratch.take(size * width)),
        query_rows_(scratch.take(padded_size_ * width)),
        dy_(scratch.take(size * width)),
        dy_rows_(scratch.take(padded_size_ * width)),
        y_(scratch.take(size * width)),
        weights_(scratch.take(padded_time_ * width)),
        dscores_(scratch.take(padded_time_ * width)),
        dq_(scratch.take(round_up(size, tile_rows) * width)),
        dk_(scratch.take(padded_time_ * padded_size_)),
        dv_(scratch.take(padded_time_ * padded_size_)) {}

  struct Inputs {
    Rows<T> q, k, v, y, dy;
    const T* log_sum_exp;
  };

  void run(const HeadContext& head, const Inputs& in, Rows<T> dq, Rows<T> dk, Rows<T> dv) {
    pack_all_rows(keys_, in.k.as_lanes(), head.time, head.size);
    pack_all_rows(keys_by_time_, in.k.as_depth(), head.size, head.time);
    pack_all_rows(values_, in.v.as_lanes(), head.time, head.size);
    std::fill_n(dk_, padded_time_ * padded_size_, T{0});
    std::fill_n(dv_, padded_time_ * padded_size_, T{0});
    for (int64_t first = 0; first < head.time; first += width) {
      const QueryBlock<T> block{first, std::min(head.time - first, width)};
      pack_block(head, in, block);
      multiply_visible(weights_, keys_, queries_, block, head.size);
      multiply_visible(dscores_, values_, dy_, block, head.size);
      if (head.dropout > 0)
        differentiate<true>(head, block, in.log_sum_exp + first);
      else
        differentiate<false>(head, block, in.log_sum_exp + first);
      add_outer_product(dv_, padded_time_, weights_, dy_rows_, block, head.size);
      add_outer_product(dk_, padded_time_, dscores_, query_rows_, block, head.size);
      multiply_keys(dq_, keys_by_time_, dscores_, block, head.time, head.size);
      gemm::unpack_columns(dq.from(first).data, dq.stride, dq_, block.count, head.size);
    }
    write(head, dk_, dk);
    write(head, dv_, dv);
  }

 private:
  static constexpr int64_t width = tile_columns<T>;

  void pack_block(const HeadContext& head, const Inputs& in, const QueryBlock<T>& block) const {
    const Rows<T> q = in.q.from(block.first);
    const Rows<T> dy = in.dy.from(block.first);
    gemm::pack_columns(queries_, q.as_lanes(), block.count, head.size);
    gemm::pack_columns(dy_, dy.as_lanes(), block.count, head.size);
    gemm::pack_columns(y_, in.y.from(block.first).as_lanes(), block.count, head.size);
    pack_all_columns(query_rows_, q.as_depth(), head.size, block.count);
    pack_all_columns(dy_rows_, dy.as_depth(), head.size, block.count);
  }

  /// From scores and the gradient of the weights: the weights that met the values, and the gradient of the
  /// scores, weight * (dweight - the sum of weight * dweight), where that sum is y . dy.
  template <bool dropped>
  void differentiate(const HeadContext& head, const QueryBlock<T>& block, const T* log_sum_exp) const {
    const T scale = static_cast<T>(head.scale);
    T log_sum[width] = {};
    std::copy_n(log_sum_exp, block.count, log_sum);
    T mean[width] = {};
    for (int64_t i = 0; i < head.size * width; i += width)
      for (int64_t lane = 0; lane < width; ++lane)
        mean[lane] = std::fma(y_[i + lane], dy_[i + lane], mean[lane]);
    DropoutFactors<T> factors(head);
    for (int64_t key = 0; key < block.padded_keys(); ++key) {
      if (dropped && key % factors.keys == 0) factors.draw(key, block.first);
      const T* factor = factors.of_key(key);
      T* weights = weights_ + key * width;
      T* dscores = dscores_ + key * width;
      for (int64_t lane = 0; lane < width; ++lane) {
        const T weight = exponential(std::fma(weights[lane], scale, -log_sum[lane]));
        const T dweight = dropped ? dscores[lane] * factor[lane] : dscores[lane];
        weights[lane] = dropped ? weight * factor[lane] : weight;
        dscores[lane] = weight * (dweight - mean[lane]) * scale;
      }
    }
    hide_later_keys(weights_, block, T{0});
    hide_later_keys(dscores_, block, T{0});
  }

  void write(const HeadContext& head, const T* sums, Rows<T> rows) const {
    for (int64_t column = 0; column < head.size; column += width)
      for (int64_t row = 0; row < head.time; ++row)
        std::copy_n(sums + column * padded_time_ + row * width, std::min(head.size - column, width),
                    rows.from(row).data + column);
  }

  int64_t padded_time_, padded_size_;
  T *keys_, *keys_by_time_, *values_;  // panels
  T *queries_, *query_rows_, *dy_, *dy_rows_, *y_;
  T *weights_, *dscores_, *dq_;
  T *dk_, *dv_;  // sums over the blocks of queries, [size / width][keys][width]
};

/// Calls body(task, head, sample, index of the head) for every head of every sample.
template <template <class> class Task, class T, class Kernel, class Body>
void for_each_head(const CpuStream& stream, const Kernel& kernel, Body&& body) {
  const int64_t time = kernel.qkv.shape[1];
  const int64_t size = kernel.qkv.shape[2] / (3 * kernel.heads);
  const int64_t tasks = kernel.qkv.shape[0] * kernel.heads;
  if (tasks * time * size == 0) return;
  Scratch<T> needed(nullptr);
  Task<T>(needed, time, size);
  // A task's results depend on its own head alone, so which worker and which memory it meets cannot show.
  std::atomic<int64_t> next{0};
  const int64_t workers = std::min<int64_t>(tasks, stream.pool->size());
  const auto memory = allocate(workers * needed.used() * static_cast<int64_t>(sizeof(T)), stream);
  stream.for_each_chunk(workers, 1, [&](int64_t worker, int64_t) {
    Scratch<T> scratch(reinterpret_cast<T*>(memory.get()) + worker * needed.used());
    Task<T> task(scratch, time, size);
    for (int64_t index = next++; index < tasks; index = next++) {
      const int64_t sample = index / kernel.heads;
      const int64_t head = index % kernel.heads;
      const HeadContext context{time,
                                size,
                                1 / std::sqrt(static_cast<double>(size)),
                                kernel.dropout,
                                derive_key(kernel.key.seed, kernel.key.site, static_cast<uint32_t>(head)),
                                kernel.key.sample + static_cast<uint32_t>(sample),
                                kernel.key.step};
      body(task, context, sample, head);
    }
  });
}

/// The rows of one head of one sample in a view [batch, time, columns]: `part` counts heads along the
/// columns.
template <class T>
Rows<T> rows(const View& view, const HeadContext& head, int64_t sample, int64_t part) {
  const int64_t stride = view.shape[2];
  return {view.as<T>() + sample * head.time * stride + part * head.size, stride};
}

}  // namespace
}  // namespace attention

void run(CpuStream stream, const CausalAttentionForward& kernel) {
  with_compute_type(kernel.qkv.dtype, [&]<class T>() {
    const auto forward = [&](auto& task, const attention::HeadContext& context, int64_t sample,
                             int64_t head) {
      const int64_t heads = kernel.heads;
      task.run(context, kernel.first_query, attention::rows<T>(kernel.qkv, context, sample, head),
               attention::rows<T>(kernel.qkv, context, sample, heads + head),
               attention::rows<T>(kernel.qkv, context, sample, 2 * heads + head),
               attention::rows<T>(kernel.y, context, sample, head),
               kernel.log_sum_exp.as<T>() + (sample * heads + head) * context.time);
    };
    attention::for_each_head<attention::ForwardTask, T>(stream, kernel, forward);
  });
}

void run(CpuStream stream, const CausalAttentionBackward& kernel) {
  with_compute_type(kernel.qkv.dtype, [&]<class T>() {
    const auto backward = [&](auto& task, const attention::HeadContext& context, int64_t sample,
                              int64_t head) {
      const int64_t heads = kernel.heads;
      const auto part = [&](const View& view, int64_t index) {
        return attention::rows<T>(view, context, sample, index);
      };
      task.run(context,
               {.q = part(kernel.qkv, head),
                .k = part(kernel.qkv, heads + head),
                .v = part(kernel.qkv, 2 * heads + head),
                .y = part(kernel.y, head),
                .dy = part(kernel.dy, head),
                .log_sum_exp = kernel.log_sum_exp.as<T>() + (sample * heads + head) * context.time},
               part(kernel.dqkv, head), part(kernel.dqkv, heads + head), part(kernel.dqkv, 2 * heads + head));
    };
    attention::for_each_head<attention::BackwardTask, T>(stream, kernel, backward);
  });
}

}  // namespace lockstep
