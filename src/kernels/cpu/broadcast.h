// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <utility>

#include "lockstep/kernels/broadcast.h"
#include "lockstep/kernels/cpu/map.h"

namespace lockstep {

/// The type in which an elementwise kernel computes values of T: Compute<T>, and i32 for i32.
template <class T>
using ElementOf = std::conditional_t<std::same_as<T, int32_t>, int32_t, Compute<T>>;

/// An operand while a result is written front to back, in blocks.
template <class T, size_t operands>
class BlockReader {
 public:
  using C = ElementOf<T>;
  static constexpr int64_t block_size = 512;

  BlockReader(const OperandView& view, size_t operand, const BroadcastPlan<operands>& plan, int64_t size)
      : values_(view.as<T>()), operand_(operand), plan_(plan), is_whole_(view.size() == size) {
    if (view.is_number() || view.size() == 1)
      std::fill_n(block_, block_size, view.is_number() ? static_cast<C>(view.number) : C(*values_));
    is_constant_ = view.size() == 1;
  }

  /// Returns the operand's values for elements [begin, begin + count) of the result.
  const C* read(int64_t begin, int64_t count) {
    if (is_constant_) return block_;
    if constexpr (std::same_as<T, C>)
      if (is_whole_) return values_ + begin;
    gather(begin, begin + count);
    return block_;
  }

 private:
  void gather(int64_t begin, int64_t end) {
    const int64_t inner = plan_.extents[0];
    for (C* to = block_; begin < end;) {
      const int64_t count = std::min(end - begin, inner - begin % inner);
      const T* from = values_ + plan_.place(operand_, begin);
      if (plan_.strides[operand_][0] == 0)
        std::fill_n(to, count, static_cast<C>(*from));
      else
        convert_elements(from, count, to);
      to += count;
      begin += count;
    }
  }

  static void convert_elements(const T* from, int64_t count, C* to) {
    if constexpr (std::same_as<T, C>)
      std::copy_n(from, count, to);
    else
      convert_values(from, count, to);
  }

  const T* values_;
  size_t operand_;
  const BroadcastPlan<operands>& plan_;
  bool is_whole_, is_constant_ = false;
  C block_[block_size];
};

/// Computes y = f(operands...), element by element. One loop over blocks computes all cases, because a
/// repeated operand is written out one block at a time.
template <class T, class F, size_t... i>
void map_broadcast(const CpuStream& stream, const View& y, F f,
                   const std::array<OperandView, sizeof...(i)>& operands, std::index_sequence<i...>) {
  using C = ElementOf<T>;
  const int64_t size = y.size();
  T* to = y.as<T>();
  if (((operands[i].size() == size && !operands[i].is_number()) && ...))
    return stream.for_each_chunk(size, elementwise_grain, [&](int64_t begin, int64_t end) {
      map_range<C>(begin, end, to, f, operands[i].template as<T>()...);
    });
  const auto plan = plan_broadcast<sizeof...(i)>({operands[i].shape...}, y.shape);
  stream.for_each_chunk(size, elementwise_grain, [&](int64_t chunk_begin, int64_t chunk_end) {
    using Reader = BlockReader<T, sizeof...(i)>;
    Reader readers[] = {Reader(operands[i], i, plan, size)...};
    for (int64_t begin = chunk_begin; begin < chunk_end; begin += Reader::block_size) {
      const int64_t count = std::min(Reader::block_size, chunk_end - begin);
      map_range<C>(0, count, to + begin, f, readers[i].read(begin, count)...);
    }
  });
}

/// Computes y = f(operands...) for operands of y's dtype.
template <class T, class F, class... Operands>
void map_operands(const CpuStream& stream, const View& y, F f, const Operands&... operands) {
  map_broadcast<T>(stream, y, f, std::array<OperandView, sizeof...(Operands)>{operands...},
                   std::index_sequence_for<Operands...>{});
}

/// Calls body.operator()<T>() with the type of any dtype.
template <class Body>
void with_any_type(DType dtype, Body&& body) {
  if (dtype == DType::i32) return body.template operator()<int32_t>();
  with_float_type(dtype, body);
}

}  // namespace lockstep
