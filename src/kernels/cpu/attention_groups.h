// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>

#include "lockstep/core/memory.h"
#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/cpu/attention_strip.h"

namespace lockstep::attention {

// A group is one head of keys and values of a sample, with the query heads that read it. Threads share groups
// or, if half of the threads would have none, the blocks of each query head. In both cases a task runs the
// parts of a head by share(count, body). This calls body(0) to body(count - 1), in order or in parallel.
// Blocks of queries and tiles of keys are the same in both cases. A sum adds them in the same order, too.

constexpr int64_t blocks_at_once = 16;           ///< blocks of queries, if threads share a head
constexpr int64_t keys_at_once = 8 * tile_rows;  ///< keys of a part of dk and dv, if threads share a head

/// The division of a kernel's groups among workers.
template <class Task>
struct Sharing {
  using T = typename Task::T;

  template <class Kernel>
  Sharing(const CpuStream& stream, const Kernel& kernel, int64_t first_query)
      : time(kernel.y.shape[1]),
        size(kernel.y.shape[2] / kernel.heads.queries),
        groups(kernel.y.shape[0] * kernel.heads.keys) {
    shared = 2 * groups <= stream.pool->size() && time - first_query > tile_columns<T>;
    at_once = shared ? blocks_at_once : 1;
    workers = shared ? 1 : std::min<int64_t>(groups, stream.pool->size());
  }

  bool is_empty() const { return groups * time * size == 0; }
  /// Returns the number of elements that a worker needs.
  int64_t scratch_size() const {
    Scratch<T> needed(nullptr);
    Task(needed, time, size, at_once);
    return needed.used();
  }

  int64_t time, size, groups;
  bool shared;  ///< whether threads share each head; otherwise each thread takes whole groups
  int64_t at_once, workers;
};

template <template <class> class Task, class Kernel>
int64_t scratch_bytes_of(const CpuStream& stream, const Kernel& kernel, int64_t first_query) {
  return with_float_type(kernel.y.dtype, [&]<class S>() -> int64_t {
    const Sharing<Task<S>> sharing(stream, kernel, first_query);
    return sharing.is_empty()
               ? 0
               : sharing.workers * sharing.scratch_size() * bytes(accumulator_dtype(kernel.y.dtype));
  });
}

/// A group of a kernel.
template <class Kernel>
struct Group {
  const Kernel& kernel;
  int64_t sample, key_head;
  int64_t time, size, first_query;

  /// Calls body(parameters of the head, index of the head) for each query head in ascending order.
  template <class Body>
  void for_each_head(Body&& body) const {
    const int64_t count = kernel.heads.group();
    for (int64_t head = key_head * count; head < (key_head + 1) * count; ++head) body(context(head), head);
  }

  HeadContext context(int64_t head) const {
    return {time,
            size,
            first_query,
            1 / std::sqrt(static_cast<double>(size)),
            kernel.dropout,
            derive_key(kernel.key.seed, kernel.key.site, static_cast<uint32_t>(head)),
            kernel.key.sample + static_cast<uint32_t>(sample),
            kernel.key.step};
  }

  /// Returns the rows of a head of this sample in [batch, time, heads * size].
  template <class S>
  Rows<S> rows(const ColumnsView& view, int64_t head) const {
    return {static_cast<S*>(view.data) + sample * time * view.stride + head * size, view.stride};
  }

  template <class T>
  T* log_sum_exp(int64_t head) const {
    return kernel.log_sum_exp.template as<T>() + (sample * kernel.heads.queries + head) * time;
  }
};

/// Calls body(task, share, group) for every group of every sample.
template <class Task, class Kernel, class Body>
void for_each_group(const CpuStream& stream, const Kernel& kernel, int64_t first_query, Body&& body) {
  using T = typename Task::T;
  const Sharing<Task> sharing(stream, kernel, first_query);
  if (sharing.is_empty()) return;
  const int64_t time = sharing.time, size = sharing.size, scratch_size = sharing.scratch_size();
  // A group's results depend only on its own inputs. So its worker and its memory do not change them.
  std::atomic<int64_t> next{0};
  const auto memory = allocate_scratch(stream, kernel);
  const auto work = [&](int64_t worker, auto&& share) {
    Scratch<T> scratch(reinterpret_cast<T*>(memory.get()) + worker * scratch_size);
    Task task(scratch, time, size, sharing.at_once);
    for (int64_t index = next++; index < sharing.groups; index = next++)
      body(task, share,
           Group<Kernel>{kernel, index / kernel.heads.keys, index % kernel.heads.keys, time, size,
                         first_query});
  };
  if (sharing.shared) return work(0, [&](int64_t count, auto&& part) { stream.pool->run(count, part); });
  stream.pool->run(sharing.workers, [&](int64_t worker) {
    work(worker, [](int64_t count, auto&& part) {
      for (int64_t i = 0; i < count; ++i) part(i);
    });
  });
}

}  // namespace lockstep::attention
