// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep::coefficients {

// Numbers in formulas that CPU kernels and GPU kernels share. They are scalars, since device code cannot read
// arrays of the host.

/// tanh(x) = x + tanh_3 x^3 + ... + tanh_11 x^11 for |x| < 0.625: a minimax polynomial (Remez).
inline constexpr float tanh_3 = -0x1.555524p-2f, tanh_5 = 0x1.1103e2p-3f, tanh_7 = -0x1.b7ce24p-5f,
                       tanh_9 = 0x1.4f5484p-6f, tanh_11 = -0x1.6947a0p-8f;

/// The tanh form of GELU uses tanh(gelu_1 x + gelu_3 x^3), where gelu_1 is sqrt(2 / pi).
inline constexpr double gelu_1 = 0.79788456080286535588, gelu_3 = 0.044715 * gelu_1;

inline constexpr double root_of_half = 0.70710678118654752440;
/// 1 / sqrt(2 pi), the density of the normal distribution at 0.
inline constexpr double normal_density = 0.39894228040143267794;

}  // namespace lockstep::coefficients
