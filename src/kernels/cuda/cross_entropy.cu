// SPDX-License-Identifier: Apache-2.0

// Softmax, cross entropy and its gradient in one kernel. Bytes: the logits once and their gradient once. If a
// row does not fit in shared memory, the logits are read once more, from the L2 cache. Two exponentials per
// element are 56 % of what an H200 can do in that time, for 16 bits. Bound: memory.
//
// Up to 2048 classes, a warp owns a row and reads it twice, the second time from the caches. With more
// classes, 512 threads own a row. They copy it to shared memory by cp.async in four stages. The online
// maximum and sum (Milakov & Gimelshein 2018) of one stage overlap the loading of the next. Two rows share a
// multiprocessor: one computes while the other moves. If two rows do not fit, the row is read twice.
//
// Thread t takes the 16-byte pieces t, t + threads, ... of a row. If rows do not consist of such pieces
// (50257 classes, for example), it takes elements t, t + threads, ... The copy in shared memory then keeps
// the row's offset within 16 bytes. So all of a row but its ends still moves in pieces. The shape alone
// decides which thread adds which elements.

#include <cmath>

#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/math.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"
#include "lockstep/kernels/cuda/softmax_row.cuh"

namespace lockstep {
namespace {

using cuda::fast_exp, cuda::from_float, cuda::join_row, cuda::load_pack, cuda::load_values, cuda::Pack,
    cuda::Softmax, cuda::store_pack_streaming, cuda::store_values, cuda::to_float;

template <class T>
struct Problem {
  const T* logits;
  const int32_t* targets;
  float* losses;
  T* dlogits;          ///< null: losses only
  const float* scale;  ///< null: 1
  int64_t rows;
  int classes;
  int32_t ignore_index;
  float gradient_scale;
  bool aligned;  ///< whether packed rows can be moved in pieces
};

/// Values that the second pass needs to turn logits into their gradient.
struct Gradient {
  float largest;
  float factor;  ///< multiplies e^(x - largest)
  float scale;
  int own_target;  ///< the thread's element that is the target, or -1

  template <int width>
  LOCKSTEP_DEVICE void apply(float (&x)[width], int group) const {
#pragma unroll
    for (int i = 0; i < width; ++i) x[i] = fast_exp(x[i] - largest) * factor;
    if (own_target < group * width || own_target >= (group + 1) * width) return;
#pragma unroll
    for (int i = 0; i < width; ++i)
      if (own_target == group * width + i) x[i] -= scale;
  }
};

template <class L>
LOCKSTEP_DEVICE Gradient gradient_of(const Softmax& row, int target, const Problem<typename L::T>& k) {
  const float scale = k.scale ? k.gradient_scale * *k.scale : k.gradient_scale;
  return {.largest = row.largest,
          .factor = scale / row.sum,
          .scale = scale,
          .own_target = L::own_element(target)};
}

/// Returns true for a row without a target, after it has written the loss and the gradient. Both are zero for
/// an ignored target, and NaN for an invalid one.
template <class L>
LOCKSTEP_DEVICE bool is_without_target(int64_t row, int32_t target, const Problem<typename L::T>& k) {
  const bool is_ignored = target == k.ignore_index;
  if (!is_ignored && target >= 0 && target < k.classes) return false;
  const float value = is_ignored ? 0.0f : NAN;
  if (L::thread() == 0) k.losses[row] = value;
  if (k.dlogits)
    for (int column = L::thread(); column < k.classes; column += L::threads)
      k.dlogits[row * k.classes + column] = from_float<typename L::T>(value);
  return true;
}

/// Handles a row that is read from memory twice.
template <class L>
__global__ void __launch_bounds__(L::threads == 32 ? 256 : L::threads, L::threads == 32 ? 4 : 2)
    two_reads_kernel(Problem<typename L::T> k) {
  constexpr int rows_per_block = L::threads == 32 ? 8 : 1;
  const int64_t row = int64_t{blockIdx.x} * rows_per_block + threadIdx.x / L::threads;
  if (row >= k.rows) return;
  const int32_t target = k.targets[row];
  if (is_without_target<L>(row, target, k)) return;
  const auto* x = k.logits + row * k.classes;
  const float target_logit = to_float(x[target]);
  const int groups = L::groups(k.classes);
  Softmax seen;
#pragma unroll 4
  for (int group = 0; group < groups; ++group) {
    typename L::Group values;
    load_values<L>(values, x, group, k.classes, k.aligned);
    seen.add(values);
  }
  seen = join_row<L::threads>(seen, cuda::dynamic_shared<float>());
  if (L::thread() == 0) k.losses[row] = math::log(seen.sum) - (target_logit - seen.largest);
  if (!k.dlogits) return;
  const Gradient gradient = gradient_of<L>(seen, target, k);
  auto* dx = k.dlogits + row * k.classes;
#pragma unroll 4
  for (int group = 0; group < groups; ++group) {
    typename L::Group values;
    load_values<L>(values, x, group, k.classes, k.aligned);
    gradient.apply(values, group);
    store_values<L>(dx, values, group, k.classes, k.aligned);
  }
}

constexpr int stages = 4;
constexpr int scratch_bytes = 128;

/// The cut of a row at multiples of 16 bytes: `head` elements, `pieces` of 16 bytes, and the rest.
template <class T>
struct Cut {
  int head;
  int pieces;

  LOCKSTEP_DEVICE Cut(const T* row, int classes) {
    const int past = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16);
    head = past == 0 ? 0 : (16 - past) / static_cast<int>(sizeof(T));
    pieces = (classes - head) / Pack<T>::size;
  }
  LOCKSTEP_DEVICE int piece(int index) const { return head + index * Pack<T>::size; }
  /// Calls body(column) for this thread's elements outside of the pieces.
  template <class Body>
  LOCKSTEP_DEVICE void for_each_end(int thread, int classes, Body body) const {
    if (thread < head) body(thread);
    if (piece(pieces) + thread < classes) body(piece(pieces) + thread);
  }
};

/// Copies the row to shared memory, and computes its maximum and sum as it arrives. With packed rows, a
/// thread waits only for its own copies. Otherwise all threads wait for all copies.
template <class L>
LOCKSTEP_DEVICE Softmax bring_row(typename L::T* shared, const typename L::T* x, int classes) {
  Softmax seen;
  const int groups = L::groups(classes);
  const auto add = [&](int first, int last) {
    for (int group = first; group < last; ++group) {
      typename L::Group values;
      load_values<L>(values, shared, group, classes, true);
      seen.add(values);
    }
  };
  if constexpr (L::packed) {
    const int per_stage = (groups + stages - 1) / stages;
    for (int stage = 0; stage < stages; ++stage) {
      for (int group = stage * per_stage; group < min(groups, (stage + 1) * per_stage); ++group)
        if (L::column(group, 0) < classes)
          cuda::cp_async_16(shared + L::column(group, 0), x + L::column(group, 0));
      cuda::cp_async_commit();
    }
    const auto add_stage = [&](int stage) { add(stage * per_stage, min(groups, (stage + 1) * per_stage)); };
    cuda::cp_async_wait<3>(), add_stage(0);
    cuda::cp_async_wait<2>(), add_stage(1);
    cuda::cp_async_wait<1>(), add_stage(2);
    cuda::cp_async_wait<0>(), add_stage(3);
  } else {
    const Cut<typename L::T> cut(x, classes);
    for (int piece = L::thread(); piece < cut.pieces; piece += L::threads)
      cuda::cp_async_16(shared + cut.piece(piece), x + cut.piece(piece));
    cuda::cp_async_commit();
    cut.for_each_end(L::thread(), classes, [&](int column) { shared[column] = x[column]; });
    cuda::cp_async_wait<0>();
    __syncthreads();
    add(0, groups);
  }
  return seen;
}

/// Writes the gradient of the row that is in shared memory.
template <class L>
LOCKSTEP_DEVICE void write_gradient(const Gradient& gradient, typename L::T* shared, typename L::T* dx,
                                    int classes) {
  const int groups = L::groups(classes);
  for (int group = 0; group < groups; ++group) {
    typename L::Group values;
    load_values<L>(values, shared, group, classes, true);
    gradient.apply(values, group);
    if constexpr (L::packed) {
      Pack<typename L::T> pack;
#pragma unroll
      for (int i = 0; i < L::width; ++i) pack.set(i, values[i]);
      if (L::column(group, 0) < classes) store_pack_streaming(dx + L::column(group, 0), pack);
    } else {
#pragma unroll
      for (int i = 0; i < L::width; ++i)
        if (L::column(group, i) < classes) shared[L::column(group, i)] = from_float<typename L::T>(values[i]);
    }
  }
  if constexpr (!L::packed) {
    __syncthreads();
    const Cut<typename L::T> cut(dx, classes);
    for (int piece = L::thread(); piece < cut.pieces; piece += L::threads)
      store_pack_streaming(dx + cut.piece(piece), load_pack(shared + cut.piece(piece)));
    cut.for_each_end(L::thread(), classes, [&](int column) { dx[column] = shared[column]; });
  }
}

/// Handles a row that is read from memory once.
template <class L>
__global__ void __launch_bounds__(L::threads, 2) shared_row_kernel(Problem<typename L::T> k) {
  const int64_t row = blockIdx.x;
  const int32_t target = k.targets[row];
  if (is_without_target<L>(row, target, k)) return;
  const auto* x = k.logits + row * k.classes;
  const float target_logit = to_float(x[target]);
  auto* scratch = cuda::dynamic_shared<char>();
  auto* shared =
      reinterpret_cast<typename L::T*>(scratch + scratch_bytes + reinterpret_cast<uintptr_t>(x) % 16);
  const Softmax seen =
      join_row<L::threads>(bring_row<L>(shared, x, k.classes), reinterpret_cast<float*>(scratch));
  if (L::thread() == 0) k.losses[row] = math::log(seen.sum) - (target_logit - seen.largest);
  write_gradient<L>(gradient_of<L>(seen, target, k), shared, k.dlogits + row * k.classes, k.classes);
}

int attribute(const CudaStream& stream, cudaDeviceAttr which) {
  int value = 0;
  cuda::check(cudaDeviceGetAttribute(&value, which, stream.device), "asking a GPU for its shared memory");
  return value;
}

/// Returns whether a block can have this much shared memory, and two such blocks share a multiprocessor.
bool fits_twice(const CudaStream& stream, int64_t bytes) {
  constexpr int64_t reserved_bytes = 1024;  // per block, by the system
  return bytes <= attribute(stream, cudaDevAttrMaxSharedMemoryPerBlockOptin) &&
         2 * (bytes + reserved_bytes) <= attribute(stream, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
}

template <class T, bool packed>
void launch_rows(const CudaStream& stream, const Problem<T>& k) {
  using Warp = cuda::SoftmaxLayout<T, 32, packed>;
  using Block = cuda::SoftmaxLayout<T, 512, packed>;
  if (k.classes <= 2048)
    return cuda::launch_grid(stream, {.blocks = cuda::blocks_for(k.rows, 8), .threads = 256},
                             two_reads_kernel<Warp>, k);
  const auto rows = static_cast<unsigned>(k.rows);
  const int64_t bytes = scratch_bytes + 32 + int64_t{k.classes} * int64_t{sizeof(T)};
  const bool is_congruent =
      reinterpret_cast<uintptr_t>(k.logits) % 16 == reinterpret_cast<uintptr_t>(k.dlogits) % 16;
  if (k.dlogits && (packed ? k.aligned : is_congruent) && fits_twice(stream, bytes))
    cuda::launch_grid(stream,
                      {.blocks = rows, .threads = Block::threads, .shared_bytes = static_cast<size_t>(bytes)},
                      shared_row_kernel<Block>, k);
  else
    cuda::launch_grid(stream, {.blocks = rows, .threads = Block::threads, .shared_bytes = scratch_bytes},
                      two_reads_kernel<Block>, k);
}

}  // namespace

void run(CudaStream stream, const CrossEntropy& k) {
  const int64_t classes = k.logits.shape[-1];
  expect(classes <= 1 << 30, classes, " classes are too many for a GPU");
  cuda::with_device_type(k.logits.dtype, [&]<class T>() {
    const Problem<T> problem{.logits = static_cast<const T*>(k.logits.data),
                             .targets = k.targets.as<int32_t>(),
                             .losses = k.losses.as<float>(),
                             .dlogits = static_cast<T*>(k.dlogits.data),
                             .scale = k.scale.as<float>(),
                             .rows = k.targets.size(),
                             .classes = static_cast<int>(classes),
                             .ignore_index = k.ignore_index,
                             .gradient_scale = static_cast<float>(k.gradient_scale),
                             .aligned = cuda::is_aligned(k.logits.data, k.dlogits.data)};
    classes % Pack<T>::size == 0 ? launch_rows<T, true>(stream, problem)
                                 : launch_rows<T, false>(stream, problem);
  });
}

}  // namespace lockstep
