// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep {

/// A form of GELU (Hendrycks & Gimpel 2016). tanh is the approximation of eq. 2 (GPT-2), and erf is the exact
/// x * Phi(x).
enum class Gelu { tanh, erf };

}  // namespace lockstep
