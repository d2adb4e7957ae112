// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

// The sums inside mma.sync.m16n8k16 with 16-bit factors and fp32 sums, bit by bit. The arithmetic is that of
// published models: MMA-Sim (arXiv 2511.10909) and Hawkeye (arXiv 2603.20421), which agree. Both were
// compared with GPUs by their authors.

namespace emulator {

/// The tensor cores of a family of GPUs.
struct TensorCore {
  int terms;          ///< products that one fused sum adds
  int fraction_bits;  ///< bits kept below the leading bit of the largest term's place
};

/// Returns the tensor core of a GPU by the major number of its compute capability. Ampere and Ada (8) add
/// eight products at a time. Later families add sixteen.
TensorCore tensor_core_of(int major);

/// A finite number: significand * 2^unit. Terms are aligned by `exponent`. It is the exponent of a number, or
/// the sum of the exponents of two factors, which is not normalised. A zero takes no part in the alignment.
struct Term {
  int32_t significand;
  int16_t unit;
  int16_t exponent;
};

/// Returns the number as a term. It must be finite. A 16-bit number is given as fp32 with its smallest normal
/// exponent: -126 for fp32 and bf16, -14 for f16.
Term term_of(float x, int smallest_exponent = -126);

inline Term product(const Term& a, const Term& b) {
  return {.significand = a.significand * b.significand,
          .unit = static_cast<int16_t>(a.unit + b.unit),
          .exponent = static_cast<int16_t>(a.exponent + b.exponent)};
}

/// Returns the sum of the terms: each is cut (toward zero) below the place of the largest exponent's
/// `fraction_bits`. The rest is added exactly. The sum is rounded toward zero to fp32. A zero sum is +0.
float fused_sum(std::span<const Term> terms, int fraction_bits);

}  // namespace emulator
