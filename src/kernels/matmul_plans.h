// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

// How products are computed on a GPU: for each shape one algorithm of cuBLASLt, chosen once. The choice is
// part of what decides bits, so ranks share it and snapshots keep it. All of it is empty, and does nothing,
// in a build without CUDA and in a process that multiplies on the CPU only.

/// While on, the first product of a new shape times what cuBLASLt offers and keeps the fastest; else, and
/// while a graph is recorded, it takes cuBLASLt's first deterministic choice. Shapes that have a plan keep
/// it.
void set_matmul_tuning(bool on);

/// What plans are made for, as exported ones begin: this thread's GPU and cuBLASLt's version.
std::string place_of_matmul_plans();

/// The plans of all shapes so far, sorted, a line each, below a line that names the GPU and cuBLASLt's
/// version; or only of those that a product has taken since the last import. Empty if there are none.
std::string export_matmul_plans(bool used_only = false);

/// Replaces all plans by exported ones (none, if the text is empty). Throws UserError if the text is not a
/// table of plans, or was made for another GPU model or another cuBLASLt.
void import_matmul_plans(const std::string& text);

}  // namespace lockstep
