// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/world.h"
#include "core/clock.h"
#include "dist/data_parallel.h"

namespace lockstep {

/// XXH3-64 (seed 0) of the parameters in ASCII order of their names. For each: the bytes of the name, a zero
/// byte, every extent as int64, the elements as stored (fp32 masters); all little-endian. A tensor with
/// several names (a tied weight) counts once, under the first of them.
uint64_t parameters_hash(std::vector<NamedTensor> parameters);
/// The same of parameters that ranks keep between them. All ranks call it.
uint64_t parameters_hash(const ParameterSpace& space, DataParallel& data_parallel);

/// Whether all ranks have the same parameters, by their hash: one that computes or remembers wrongly is found
/// at the next snapshot, and not when the run is over. All ranks call it alike.
class ParameterCheck {
 public:
  /// Keeps references.
  ParameterCheck(const World& world, const ParameterSpace& space, DataParallel& data_parallel)
      : world_(world), space_(space), data_parallel_(data_parallel) {}

  /// Returns the hash. Error naming the ranks that differ from most of the others, or all where no hash has
  /// most of them.
  uint64_t compare(int64_t step);
  /// The same before a snapshot, unless it would take more than a hundredth of the time since the last one,
  /// by rank 0's clock.
  void compare_if_cheap(int64_t step);

 private:
  const World& world_;
  const ParameterSpace& space_;
  DataParallel& data_parallel_;
  double seconds_ = 0.0;  ///< that it took
  Clock::time_point last_ = Clock::now();
};

/// XXH3-64 (seed 0) of bytes that come piece after piece.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void add(std::span<const std::byte> piece);
  void reset();
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// XXH3-64 (seed 0) of some bytes.
uint64_t hash_of(std::string_view bytes);
/// The same of bytes that lie in several places of memory.
uint64_t hash_of(std::span<const std::span<const std::byte>> pieces);

/// 16 hexadecimal digits.
std::string hash_text(uint64_t hash);

}  // namespace lockstep
