// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/replay/replay_step.h"
#include "lockstep/tensor/safetensors.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

/// Describes a replica's work for people: its batch as text, the largest losses of tokens, and a line for
/// each parameter and each operation. `tokenizer` may be null.
std::string describe(const ReplicaTrace& replica, const Tokenizer* tokenizer);
/// Describes the step and then its replica.
std::string describe(const StepReplay& step, const Tokenizer* tokenizer);

/// Returns everything that describe() tells as JSON, with the losses of all tokens.
std::string to_json(const ReplicaTrace& replica, const Tokenizer* tokenizer);
std::string to_json(const StepReplay& step, const Tokenizer* tokenizer);

/// Returns the tensors of a replica's work: inputs, targets, losses, gradients, and what was kept of the
/// operations.
SafeTensors tensors_of(const ReplicaTrace& replica);
/// Returns those of all replicas that were traced, and the values before and after the step.
SafeTensors tensors_of(const StepReplay& step);

}  // namespace lockstep
