// SPDX-License-Identifier: Apache-2.0
// What the exercises have besides the library: places to be filled in, and lines that check_exercise
// compares.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/tutorial/options.h"
#include "comm/world.h"
#include "core/error.h"
#include "core/file.h"
#include "data/loader.h"
#include "dist/data_parallel.h"
#include "nn/layers.h"
#include "nn/module.h"
#include "nn/sgd.h"
#include "tensor/create.h"
#include "tensor/ops.h"
#include "tensor/safetensors.h"

namespace lockstep {

/// A place to be filled in with a T, or, if T is void, with statements. Throws Error with `what` belongs
/// there and where that is.
template <class T>
T blank(const std::string& what, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  throw Error(concat("still blank: ", what), file, line);
}

/// "3f06bf69 (0.526359)".
std::string bits_of(float loss);
/// Prints "step 17 loss_bits 3f06bf69 (0.526359)". Steps count from 1 over all epochs.
void report_step(int64_t step, float loss);
/// The same for the loss of an evaluation after that step.
void report_evaluation(int64_t step, float loss);
/// Prints "step 17 <words>".
void report_words(int64_t step, const std::string& words);
/// Prints "step 17 at most 52 KiB ...": the most that was held at a time of what has no label of its own, and
/// that is what a forward leaves for its backward and what the backward makes.
void report_memory(int64_t step);
/// report_words() for every rank, in their order. All ranks call it.
void report_ranks(const World& world, int64_t step, const std::string& words);

using Numbers = std::vector<float>;

/// The elements of a tensor, in a copy.
Numbers numbers(const Tensor& tensor);
/// a + b, element by element.
Numbers add(const Numbers& a, const Numbers& b);
/// All parts added up as DataParallel does: neighbours first, then their sums; one without a neighbour waits.
Numbers tree_sum(std::vector<Numbers> parts);
/// Cuts `all` into as many equal pieces.
std::vector<Numbers> cut(const Numbers& all, int pieces);
/// tree_sum() divided by the number of parts.
Numbers tree_mean(const std::vector<Numbers>& parts);
float tree_mean(const std::vector<float>& parts);
/// tree_mean() of what all ranks bring, on every rank. All ranks call it.
Numbers mean_over_ranks(const World& world, const Numbers& mine);
float mean_over_ranks(const World& world, float mine);

/// The node that a rank of chapter 4 takes itself to be on: the ranks of a run, cut into so many nodes of
/// this host. Its disk is a folder, which ranks of other nodes must not touch.
struct Node {
  std::string name;  ///< "node1"
  std::string disk;  ///< "node1/"
};
Node pretend_node(const World& world, int nodes);

/// Stands for a download of pretrained weights, which takes its time: writes them to `path`.
void download_weights(const Node& node, const std::string& path);
/// What lies on all disks, and how often weights were downloaded: "files: node0/w.safetensors (1 download)
/// ...".
std::string files_on_disks(int nodes);

}  // namespace lockstep
