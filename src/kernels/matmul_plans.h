// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// The problem, in a Wording, that the plans of a run are those of another GPU.
inline constexpr const char* foreign_plans = "plans of another GPU";

// The plans for matmuls on a GPU. A plan is one algorithm of cuBLASLt per shape, chosen once. Plans affect
// the bits, so ranks share them and snapshots store them. A build without CUDA has no plans, and neither has
// a process that computes matmuls only on the CPU. There these functions do nothing.

/// Turns tuning on or off. With tuning the first matmul of a new shape times cuBLASLt's suggestions and keeps
/// the fastest. Without tuning it takes cuBLASLt's first deterministic choice. It also does so while a graph
/// is recorded. Shapes that have a plan keep it.
void set_matmul_tuning(bool on);

/// Returns the first line of exported plans: this thread's GPU and cuBLASLt's version. Plans are made for
/// this combination.
std::string place_of_matmul_plans();

/// Returns the sorted plans of all shapes so far, one per line. The line before them names the GPU and
/// cuBLASLt's version. With `used_only` it returns only the plans that a matmul has used since the last
/// import. Without plans the text is empty.
std::string export_matmul_plans(bool used_only = false);

/// Replaces all plans by exported ones (by none if the text is empty). Throws UserError if the text is not a
/// table of plans, or was made for another GPU model or another cuBLASLt.
void import_matmul_plans(const std::string& text);

}  // namespace lockstep
