// SPDX-License-Identifier: Apache-2.0
// Helpers of the exercises: blanks for the learner to fill in, and report lines that check_exercise compares.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/tutorial/options.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/data/loader.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/nn/layers.h"
#include "lockstep/nn/module.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/safetensors.h"

namespace lockstep {

/// A blank that the learner replaces by an expression of type T, or by statements if T is void. Throws Error
/// that names the missing code, the file and the line.
template <class T>
T blank(const std::string& what, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  throw Error(concat("still blank: ", what), file, line);
}

/// Returns the bits and value of a loss, such as "3f06bf69 (0.526359)".
std::string bits_of(float loss);
/// Prints "step 17 loss_bits 3f06bf69 (0.526359)". Steps count from 1 over all epochs.
void report_step(int64_t step, float loss);
/// Prints the loss of an evaluation after a step: "step 17 evaluation_bits 3f06bf69 (0.526359)".
void report_evaluation(int64_t step, float loss);
/// Prints "step 17 <words>".
void report_words(int64_t step, const std::string& words);
/// Prints "step 17 at most 52 KiB ...", the peak of memory without a label. This is the activations that a
/// forward keeps and the tensors of the backward.
void report_memory(int64_t step);
/// Calls report_words() for every rank in rank order. All ranks must call it.
void report_ranks(const World& world, int64_t step, const std::string& words);

using Numbers = std::vector<float>;

/// Returns a copy of a tensor's elements.
Numbers numbers(const Tensor& tensor);
/// Adds a and b element by element.
Numbers add(const Numbers& a, const Numbers& b);
/// Adds all parts in the order of DataParallel: first neighbours, then their sums. A part without a neighbour
/// waits for the next round.
Numbers tree_sum(std::vector<Numbers> parts);
/// Cuts `all` into `pieces` equal pieces.
std::vector<Numbers> cut(const Numbers& all, int pieces);
/// Returns tree_sum() divided by the number of parts.
Numbers tree_mean(const std::vector<Numbers>& parts);
float tree_mean(const std::vector<float>& parts);
/// Returns tree_mean() of every rank's `mine`. All ranks must call it and get the same result.
Numbers mean_over_ranks(const World& world, const Numbers& mine);
float mean_over_ranks(const World& world, float mine);

/// A simulated node of chapter 4. The ranks of a run on this host are cut into several nodes. A node's disk
/// is a folder, which ranks of other nodes must not touch.
struct Node {
  std::string name;  ///< "node1"
  std::string disk;  ///< "node1/"
};
Node pretend_node(const World& world, int nodes);

/// Simulates a slow download of pretrained weights and writes them to `path`.
void download_weights(const Node& node, const std::string& path);
/// Lists the files on all disks and counts the downloads: "files: node0/w.safetensors (1 download) ...".
std::string files_on_disks(int nodes);

}  // namespace lockstep
