// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "core/memory.h"
#include "kernels/cpu/attention_strip.h"
#include "kernels/matmul.h"

namespace lockstep {
namespace attention {
namespace {

// Threads share heads or, if half of the threads would have none, the blocks of each head. In both cases a
// task runs the parts of a head by share(count, body). This calls body(0) to body(count - 1), in order or in
// parallel. Blocks of queries and tiles of keys are the same in both cases. A sum adds them in the same
// order, too.

constexpr int64_t blocks_at_once = 16;           ///< blocks of queries, if threads share a head
constexpr int64_t keys_at_once = 8 * tile_rows;  ///< keys of a part of dk and dv, if threads share a head

/// weights = exp(scale * (scores - their maximum)). `sums` receives the sums of every four weights, added up.
template <class T>
void exponentiate(const HeadContext& head, const QueryBlock<T>& block, T* weights, T* sums, T* log_sum_exp) {
  constexpr int64_t width = tile_columns<T>;
  const T scale = static_cast<T>(head.scale);
  const int64_t end = block.padded_keys() * width;
  T largest[width];
  hide_later_keys(weights, block, -std::numeric_limits<T>::infinity());
  std::copy_n(weights, width, largest);
  for (int64_t i = width; i < end; i += width)
    for (int64_t lane = 0; lane < width; ++lane)
      largest[lane] = weights[i + lane] > largest[lane] ? weights[i + lane] : largest[lane];
  for (int64_t i = 0; i < end; i += width)
    for (int64_t lane = 0; lane < width; ++lane)
      weights[i + lane] = exponential((weights[i + lane] - largest[lane]) * scale);
  hide_later_keys(weights, block, T{0});
  std::fill_n(sums, width, T{0});
  for (int64_t i = 0; i < end; i += 4 * width)
    for (int64_t lane = 0; lane < width; ++lane) {
      const T* weight = weights + i + lane;
      sums[lane] += (weight[0] + weight[width]) + (weight[2 * width] + weight[3 * width]);
    }
  for (int64_t lane = 0; lane < block.count; ++lane)
    log_sum_exp[lane] = std::fma(scale, largest[lane], math::log(sums[lane]));
}

template <class T>
void drop(const HeadContext& head, const QueryBlock<T>& block, T* weights) {
  constexpr int64_t width = tile_columns<T>;
  DropoutFactors<T> factors(head);
  for (int64_t key = 0; key < block.keys(); ++key) {
    if (key % factors.keys == 0) factors.draw(key, block.first);
    const T* factor = factors.of_key(key);
    for (int64_t lane = 0; lane < width; ++lane) weights[key * width + lane] *= factor[lane];
  }
}

template <class S>
class ForwardTask {
 public:
  using T = Compute<S>;
  using Tiles = ChainTiles<S>;
  using Packed = typename Tiles::Packed;

  ForwardTask(Scratch<T>& scratch, int64_t time, int64_t size, int64_t at_once)
      : keys_(scratch.template take<Packed>(round_up(time, Tiles::rows) * round_up(size, Tiles::depth_unit))),
        values_(scratch.take(round_up(size, tile_rows) * time)),
        at_once_(at_once) {
    for (int64_t i = 0; i < at_once; ++i)
      strips_[i] = {.queries = scratch.template take<Packed>(round_up(size, Tiles::depth_unit) * width),
                    .rounded = scratch.take(std::same_as<S, T> ? 0 : size * width),
                    .weights = scratch.take(round_up(time, tile_rows) * width),
                    .output = scratch.take(round_up(size, tile_rows) * width)};
  }

  template <class Share>
  void run(const HeadContext& head, Share&& share, Rows<S> q, Rows<S> k, Rows<S> v, Rows<S> y,
           T* log_sum_exp) {
    share(2, [&](int64_t part) {
      if (part == 0) Tiles::pack_rows(keys_, k.as_lanes(), head.time, head.size);
      if (part == 1) gemm::pack_rows(values_, v.as_depth(), head.size, head.time);
    });
    for (int64_t first = head.first_query; first < head.time; first += at_once_ * width) {
      const int64_t blocks = std::min(at_once_, divide_up(head.time - first, width));
      share(blocks, [&](int64_t i) {
        run_block(head, head.block<T>(first + i * width), strips_[i], q, y, log_sum_exp);
      });
    }
  }

 private:
  static constexpr int64_t width = tile_columns<T>;

  struct Strips {
    Packed* queries;
    T *rounded, *weights, *output;
  };

  void run_block(const HeadContext& head, const QueryBlock<T>& block, const Strips& strips, Rows<S> q,
                 Rows<S> y, T* log_sum_exp) const {
    const auto [queries, rounded, weights, output] = strips;
    Tiles::pack_columns(queries, q.from(block.first).as_lanes(), block.count, head.size);
    multiply_visible<Tiles>(weights, keys_, queries, block, head.size);
    T sums[width];
    exponentiate(head, block, weights, sums, log_sum_exp + block.first);
    if (head.dropout > 0) drop(head, block, weights);
    multiply_keys(output, values_, weights, block, head.time, head.size);
    for (int64_t d = 0; d < head.size; ++d)
      for (int64_t lane = 0; lane < width; ++lane)
        output[d * width + lane] = with_positive_zero(output[d * width + lane]) / sums[lane];
    write_rows(y.from(block.first), output, block.count, head.size, rounded);
  }

  Packed* keys_;  // panels of Tiles::pack_rows()
  T* values_;
  int64_t at_once_;
  Strips strips_[blocks_at_once];
};

/// The memory of one block of queries.
template <class Tiles, class T>
struct BackwardStrips {
  typename Tiles::Packed *queries, *dy, *y;
  T *query_rows, *dy_rows, *rounded, *weights, *dscores, *dq;
};

/// Replaces the scores by the weights that the values were multiplied with. Replaces the gradient of the
/// weights by the gradient of the scores, weight * (dweight - the sum of weight * dweight). That sum is
/// y . dy.
template <class Tiles, bool dropped, class T>
void differentiate(const HeadContext& head, const QueryBlock<T>& block,
                   const BackwardStrips<Tiles, T>& strips, const T* log_sum_exp) {
  constexpr int64_t width = tile_columns<T>;
  const T scale = static_cast<T>(head.scale);
  T log_sum[width] = {};
  std::copy_n(log_sum_exp, block.count, log_sum);
  T mean[width];
  Tiles::multiply_lanes(mean, strips.y, strips.dy, head.size);
  DropoutFactors<T> factors(head);
  for (int64_t key = 0; key < block.padded_keys(); ++key) {
    if (dropped && key % factors.keys == 0) factors.draw(key, block.first);
    const T* factor = factors.of_key(key);
    T* weights = strips.weights + key * width;
    T* dscores = strips.dscores + key * width;
    for (int64_t lane = 0; lane < width; ++lane) {
      const T weight = exponential(std::fma(weights[lane], scale, -log_sum[lane]));
      const T dweight = dropped ? dscores[lane] * factor[lane] : dscores[lane];
      weights[lane] = dropped ? weight * factor[lane] : weight;
      dscores[lane] = weight * (dweight - mean[lane]) * scale;
    }
  }
  hide_later_keys(strips.weights, block, T{0});
  hide_later_keys(strips.dscores, block, T{0});
}

template <class S>
class BackwardTask {
 public:
  using T = Compute<S>;
  using Tiles = ChainTiles<S>;
  using Packed = typename Tiles::Packed;

  BackwardTask(Scratch<T>& scratch, int64_t time, int64_t size, int64_t at_once)
      : padded_time_(round_up(time, tile_rows)),
        padded_size_(round_up(size, width)),
        packed_size_(round_up(size, Tiles::depth_unit)),
        keys_(scratch.template take<Packed>(round_up(time, Tiles::rows) * packed_size_)),
        values_(scratch.template take<Packed>(round_up(time, Tiles::rows) * packed_size_)),
        keys_by_time_(scratch.take(round_up(size, tile_rows) * time)),
        dk_(scratch.take(padded_time_ * padded_size_)),
        dv_(scratch.take(padded_time_ * padded_size_)),
        at_once_(at_once) {
    for (int64_t i = 0; i < at_once; ++i)
      strips_[i] = {.queries = scratch.template take<Packed>(packed_size_ * width),
                    .dy = scratch.template take<Packed>(packed_size_ * width),
                    .y = scratch.template take<Packed>(packed_size_ * width),
                    .query_rows = scratch.take(padded_size_ * width),
                    .dy_rows = scratch.take(padded_size_ * width),
                    .rounded = scratch.take(std::same_as<S, T> ? 0 : size * width),
                    .weights = scratch.take(padded_time_ * width),
                    .dscores = scratch.take(padded_time_ * width),
                    .dq = scratch.take(round_up(size, tile_rows) * width)};
  }

  struct Inputs {
    Rows<S> q, k, v, y, dy;
    const T* log_sum_exp;
  };

  template <class Share>
  void run(const HeadContext& head, Share&& share, const Inputs& in, Rows<S> dq, Rows<S> dk, Rows<S> dv) {
    share(3, [&](int64_t part) {
      if (part == 0) Tiles::pack_rows(keys_, in.k.as_lanes(), head.time, head.size);
      if (part == 1) gemm::pack_rows(keys_by_time_, in.k.as_depth(), head.size, head.time);
      if (part == 2) Tiles::pack_rows(values_, in.v.as_lanes(), head.time, head.size);
    });
    std::fill_n(dk_, padded_time_ * padded_size_, T{0});
    std::fill_n(dv_, padded_time_ * padded_size_, T{0});
    for (int64_t first = 0; first < head.time; first += at_once_ * width) {
      const int64_t blocks = std::min(at_once_, divide_up(head.time - first, width));
      share(blocks,
            [&](int64_t i) { run_block(head, in, head.block<T>(first + i * width), strips_[i], dq); });
      const int64_t keys = head.block<T>(first + (blocks - 1) * width).padded_keys();
      const int64_t step = at_once_ == 1 ? keys : keys_at_once;
      share(divide_up(keys, step), [&](int64_t part) {
        for (int64_t i = 0; i < blocks; ++i) {
          const auto block = head.block<T>(first + i * width);
          const KeyRange range{part * step, std::min(part * step + step, block.padded_keys())};
          add_outer_product(dv_, padded_time_, strips_[i].weights, strips_[i].dy_rows, block, range,
                            head.size);
          add_outer_product(dk_, padded_time_, strips_[i].dscores, strips_[i].query_rows, block, range,
                            head.size);
        }
      });
    }
    share(2, [&](int64_t part) { part == 0 ? write(head, dk_, dk) : write(head, dv_, dv); });
  }

 private:
  static constexpr int64_t width = tile_columns<T>;

  using Strips = BackwardStrips<Tiles, T>;

  void run_block(const HeadContext& head, const Inputs& in, const QueryBlock<T>& block, const Strips& strips,
                 Rows<S> dq) const {
    pack_block(head, in, block, strips);
    multiply_visible<Tiles>(strips.weights, keys_, strips.queries, block, head.size);
    multiply_visible<Tiles>(strips.dscores, values_, strips.dy, block, head.size);
    if (head.dropout > 0)
      differentiate<Tiles, true>(head, block, strips, in.log_sum_exp + block.first);
    else
      differentiate<Tiles, false>(head, block, strips, in.log_sum_exp + block.first);
    multiply_keys(strips.dq, keys_by_time_, strips.dscores, block, head.time, head.size);
    for (int64_t i = 0; i < head.size * width; ++i) strips.dq[i] = with_positive_zero(strips.dq[i]);
    write_rows(dq.from(block.first), strips.dq, block.count, head.size, strips.rounded);
  }

  static void pack_block(const HeadContext& head, const Inputs& in, const QueryBlock<T>& block,
                         const Strips& strips) {
    const Rows<S> q = in.q.from(block.first);
    const Rows<S> dy = in.dy.from(block.first);
    Tiles::pack_columns(strips.queries, q.as_lanes(), block.count, head.size);
    Tiles::pack_columns(strips.dy, dy.as_lanes(), block.count, head.size);
    Tiles::pack_columns(strips.y, in.y.from(block.first).as_lanes(), block.count, head.size);
    pack_all_columns(strips.query_rows, q.as_depth(), head.size, block.count);
    pack_all_columns(strips.dy_rows, dy.as_depth(), head.size, block.count);
  }

  void write(const HeadContext& head, const T* sums, Rows<S> rows) const {
    for (int64_t column = 0; column < head.size; column += width)
      for (int64_t row = 0; row < head.time; ++row)
        map_range<T>(
            0, std::min(head.size - column, width), rows.from(row).data + column,
            [](T x) { return with_positive_zero(x); }, sums + column * padded_time_ + row * width);
  }

  int64_t padded_time_, padded_size_, packed_size_;
  Packed *keys_, *values_;  // panels of Tiles::pack_rows()
  T* keys_by_time_;
  T *dk_, *dv_;  // sums over the queries so far, [size / width][keys][width]
  int64_t at_once_;
  Strips strips_[blocks_at_once];
};

/// The division of a kernel's heads among workers.
template <class Task>
struct Sharing {
  using T = typename Task::T;

  Sharing(const CpuStream& stream, const View& qkv, int64_t heads_of_sample, int64_t first_query)
      : time(qkv.shape[1]),
        size(qkv.shape[2] / (3 * heads_of_sample)),
        heads(qkv.shape[0] * heads_of_sample) {
    shared = 2 * heads <= stream.pool->size() && time - first_query > tile_columns<T>;
    at_once = shared ? blocks_at_once : 1;
    workers = shared ? 1 : std::min<int64_t>(heads, stream.pool->size());
  }

  bool is_empty() const { return heads * time * size == 0; }
  /// Returns the number of elements that a worker needs.
  int64_t scratch_size() const {
    Scratch<T> needed(nullptr);
    Task(needed, time, size, at_once);
    return needed.used();
  }

  int64_t time, size, heads;
  bool shared;  ///< whether threads share each head; otherwise each thread takes whole heads
  int64_t at_once, workers;
};

template <template <class> class Task, class Kernel>
int64_t scratch_bytes_of(const CpuStream& stream, const Kernel& kernel, int64_t first_query) {
  return with_float_type(kernel.qkv.dtype, [&]<class S>() -> int64_t {
    const Sharing<Task<S>> sharing(stream, kernel.qkv, kernel.heads, first_query);
    return sharing.is_empty()
               ? 0
               : sharing.workers * sharing.scratch_size() * bytes(accumulator_dtype(kernel.qkv.dtype));
  });
}

/// Calls body(task, head, share, sample, index of the head) for every head of every sample.
template <class Task, class Kernel, class Body>
void for_each_head(const CpuStream& stream, const Kernel& kernel, int64_t first_query, Body&& body) {
  using T = typename Task::T;
  const Sharing<Task> sharing(stream, kernel.qkv, kernel.heads, first_query);
  if (sharing.is_empty()) return;
  const int64_t time = sharing.time, size = sharing.size, scratch_size = sharing.scratch_size();
  // A head's results depend only on its own inputs. So its worker and its memory do not change them.
  std::atomic<int64_t> next{0};
  const auto memory = allocate_scratch(stream, kernel);
  const auto work = [&](int64_t worker, auto&& share) {
    Scratch<T> scratch(reinterpret_cast<T*>(memory.get()) + worker * scratch_size);
    Task task(scratch, time, size, sharing.at_once);
    for (int64_t index = next++; index < sharing.heads; index = next++) {
      const int64_t sample = index / kernel.heads;
      const int64_t head = index % kernel.heads;
      const HeadContext context{time,
                                size,
                                first_query,
                                1 / std::sqrt(static_cast<double>(size)),
                                kernel.dropout,
                                derive_key(kernel.key.seed, kernel.key.site, static_cast<uint32_t>(head)),
                                kernel.key.sample + static_cast<uint32_t>(sample),
                                kernel.key.step};
      body(task, context, share, sample, head);
    }
  };
  if (sharing.shared) return work(0, [&](int64_t count, auto&& part) { stream.pool->run(count, part); });
  stream.pool->run(sharing.workers, [&](int64_t worker) {
    work(worker, [](int64_t count, auto&& part) {
      for (int64_t i = 0; i < count; ++i) part(i);
    });
  });
}

/// Returns the rows of one head of one sample in a view [batch, time, columns]. `part` counts heads along the
/// columns.
template <class S>
Rows<S> rows(const View& view, const HeadContext& head, int64_t sample, int64_t part) {
  const int64_t stride = view.shape[2];
  return {view.as<S>() + sample * head.time * stride + part * head.size, stride};
}

}  // namespace
}  // namespace attention

int64_t scratch_bytes(CpuStream stream, const CausalAttentionForward& kernel) {
  return attention::scratch_bytes_of<attention::ForwardTask>(stream, kernel, kernel.first_query);
}

int64_t scratch_bytes(CpuStream stream, const CausalAttentionBackward& kernel) {
  return attention::scratch_bytes_of<attention::BackwardTask>(stream, kernel, 0);
}

void run(CpuStream stream, const CausalAttentionForward& kernel) {
  with_float_type(kernel.qkv.dtype, [&]<class S>() {
    const auto forward = [&](auto& task, const attention::HeadContext& context, auto&& share, int64_t sample,
                             int64_t head) {
      const int64_t heads = kernel.heads;
      task.run(context, share, attention::rows<S>(kernel.qkv, context, sample, head),
               attention::rows<S>(kernel.qkv, context, sample, heads + head),
               attention::rows<S>(kernel.qkv, context, sample, 2 * heads + head),
               attention::rows<S>(kernel.y, context, sample, head),
               kernel.log_sum_exp.as<Compute<S>>() + (sample * heads + head) * context.time);
    };
    attention::for_each_head<attention::ForwardTask<S>>(stream, kernel, kernel.first_query, forward);
  });
}

void run(CpuStream stream, const CausalAttentionBackward& kernel) {
  with_float_type(kernel.qkv.dtype, [&]<class S>() {
    const auto backward = [&](auto& task, const attention::HeadContext& context, auto&& share, int64_t sample,
                              int64_t head) {
      const int64_t heads = kernel.heads;
      const auto part = [&](const View& view, int64_t index) {
        return attention::rows<S>(view, context, sample, index);
      };
      task.run(context, share,
               {.q = part(kernel.qkv, head),
                .k = part(kernel.qkv, heads + head),
                .v = part(kernel.qkv, 2 * heads + head),
                .y = part(kernel.y, head),
                .dy = part(kernel.dy, head),
                .log_sum_exp = kernel.log_sum_exp.as<Compute<S>>() + (sample * heads + head) * context.time},
               part(kernel.dqkv, head), part(kernel.dqkv, heads + head), part(kernel.dqkv, 2 * heads + head));
    };
    attention::for_each_head<attention::BackwardTask<S>>(stream, kernel, 0, backward);
  });
  const View& sums = kernel.dqkv_sum;
  if (sums) run(stream, ColumnSum{.x = kernel.dqkv, .y = {sums.data, {sums.size()}, sums.dtype}});
}

}  // namespace lockstep
