// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/replay/bundle.h"
#include "lockstep/replay/replay_step.h"
#include "lockstep/tensor/safetensors.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

/// Describes a step for people, and then each of its replicas that was traced: its batch as text, the largest
/// losses of tokens, and a line for each parameter and each operation. `tokenizer` may be null.
std::string describe(const StepReplay& step, const Tokenizer* tokenizer);
/// Describes a bundle as a step with one micro-batch.
std::string describe(const BundleReplay& bundle);

/// Returns everything that describe() shows as JSON, with the losses of all tokens.
std::string to_json(const StepReplay& step, const Tokenizer* tokenizer);
std::string to_json(const BundleReplay& bundle);

/// Returns the tensors of a replica: inputs, targets, losses, gradients, and the results of operations that
/// were kept.
SafeTensors tensors_of(const ReplicaTrace& replica);
/// Returns those of all replicas that were traced, and the values before and after the step.
SafeTensors tensors_of(const StepReplay& step);

}  // namespace lockstep
