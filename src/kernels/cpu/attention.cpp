// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/kernels/cpu/attention_groups.h"
#include "lockstep/kernels/cpu/attention_strip.h"
#include "lockstep/kernels/matmul.h"

namespace lockstep {
namespace attention {
namespace {

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

  /// Packs the keys and values of a group.
  template <class Share>
  void begin(Share&& share, int64_t time, int64_t size, Rows<S> k, Rows<S> v) {
    share(2, [&](int64_t part) {
      if (part == 0) Tiles::pack_rows(keys_, k.as_lanes(), time, size);
      if (part == 1) gemm::pack_rows(values_, v.as_depth(), size, time);
    });
  }

  /// Computes a query head of the group.
  template <class Share>
  void run(const HeadContext& head, Share&& share, Rows<S> q, Rows<S> y, T* log_sum_exp) {
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
    Rows<S> q, y, dy;
    const T* log_sum_exp;
  };

  /// Packs the keys and values of a group, and sets the sums of their gradients to zero.
  template <class Share>
  void begin(Share&& share, int64_t time, int64_t size, Rows<S> k, Rows<S> v) {
    share(3, [&](int64_t part) {
      if (part == 0) Tiles::pack_rows(keys_, k.as_lanes(), time, size);
      if (part == 1) gemm::pack_rows(keys_by_time_, k.as_depth(), size, time);
      if (part == 2) Tiles::pack_rows(values_, v.as_lanes(), time, size);
    });
    std::fill_n(dk_, padded_time_ * padded_size_, T{0});
    std::fill_n(dv_, padded_time_ * padded_size_, T{0});
  }

  /// Computes dq of a query head of the group, and adds the head to the sums of dk and dv.
  template <class Share>
  void run(const HeadContext& head, Share&& share, const Inputs& in, Rows<S> dq) {
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
  }

  /// Writes the gradients of the group's keys and values.
  template <class Share>
  void finish(Share&& share, int64_t time, int64_t size, Rows<S> dk, Rows<S> dv) const {
    share(2, [&](int64_t part) { part == 0 ? write(time, size, dk_, dk) : write(time, size, dv_, dv); });
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

  void write(int64_t time, int64_t size, const T* sums, Rows<S> rows) const {
    for (int64_t column = 0; column < size; column += width)
      for (int64_t row = 0; row < time; ++row)
        map_range<T>(
            0, std::min(size - column, width), rows.from(row).data + column,
            [](T x) { return with_positive_zero(x); }, sums + column * padded_time_ + row * width);
  }

  int64_t padded_time_, padded_size_, packed_size_;
  Packed *keys_, *values_;  // panels of Tiles::pack_rows()
  T* keys_by_time_;
  T *dk_, *dv_;  // sums over the queries so far, [size / width][keys][width]
  int64_t at_once_;
  Strips strips_[blocks_at_once];
};

}  // namespace
}  // namespace attention

int64_t scratch_bytes(CpuStream stream, const CausalAttentionForward& kernel) {
  return attention::scratch_bytes_of<attention::ForwardTask>(stream, kernel, kernel.first_query);
}

int64_t scratch_bytes(CpuStream stream, const CausalAttentionBackward& kernel) {
  return attention::scratch_bytes_of<attention::BackwardTask>(stream, kernel, 0);
}

void run(CpuStream stream, const CausalAttentionForward& kernel) {
  const ColumnsView y = kernel.y;
  with_float_type(y.dtype, [&]<class S>() {
    const auto forward = [&](auto& task, auto&& share, const auto& group) {
      const QueryKeyValue& in = kernel.qkv;
      task.begin(share, group.time, group.size, group.template rows<S>(in.k, group.key_head),
                 group.template rows<S>(in.v, group.key_head));
      group.for_each_head([&](const attention::HeadContext& context, int64_t head) {
        task.run(context, share, group.template rows<S>(in.q, head), group.template rows<S>(y, head),
                 group.template log_sum_exp<Compute<S>>(head));
      });
    };
    attention::for_each_group<attention::ForwardTask<S>>(stream, kernel, kernel.first_query, forward);
  });
}

void run(CpuStream stream, const CausalAttentionBackward& kernel) {
  const ColumnsView y = kernel.y, dy = kernel.dy;
  with_float_type(y.dtype, [&]<class S>() {
    const auto backward = [&](auto& task, auto&& share, const auto& group) {
      const auto rows = [&](const ColumnsView& view, int64_t head) {
        return group.template rows<S>(view, head);
      };
      const QueryKeyValue &in = kernel.qkv, &out = kernel.dqkv;
      const int64_t key_head = group.key_head;
      task.begin(share, group.time, group.size, rows(in.k, key_head), rows(in.v, key_head));
      group.for_each_head([&](const attention::HeadContext& context, int64_t head) {
        task.run(context, share,
                 {.q = rows(in.q, head),
                  .y = rows(y, head),
                  .dy = rows(dy, head),
                  .log_sum_exp = group.template log_sum_exp<Compute<S>>(head)},
                 rows(out.q, head));
      });
      task.finish(share, group.time, group.size, rows(out.k, key_head), rows(out.v, key_head));
    };
    attention::for_each_group<attention::BackwardTask<S>>(stream, kernel, 0, backward);
  });
  const View& sums = kernel.dqkv_sum;
  if (sums) run(stream, ColumnSum{.x = kernel.dqkv.packed(), .y = {sums.data, {sums.size()}, sums.dtype}});
}

}  // namespace lockstep
