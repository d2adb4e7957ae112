// SPDX-License-Identifier: Apache-2.0
#include "train/memory_need.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sys/resource.h>

#include "config/config_schema.h"
#include "core/error.h"
#include "core/gpu.h"
#include "core/text.h"

namespace lockstep {
namespace {

/// A key that a need is proportional to, and its value in GPT-2.
struct Factor {
  std::string key;
  int64_t value = 0;
  double ordinary = 1;
};

/// What is furthest above the ordinary is what somebody mistyped, or asks too much of.
std::string dominant(const std::vector<Factor>& factors) {
  const auto excess = [](const Factor& factor) {
    return static_cast<double>(factor.value) / factor.ordinary;
  };
  return std::ranges::max_element(factors, {}, excess)->key;
}

/// The number behind a word of a file such as /proc/meminfo, or of the whole file; infinite if it is not
/// there.
double number_in(const std::string& path, const std::string& word = "") {
  std::ifstream file(path);
  std::string text;
  double number = 0;
  while (!word.empty() && file >> text && text != word) continue;
  return file >> number ? number : std::numeric_limits<double>::infinity();
}

/// The least limit of the control groups that this process is in.
double control_group_limit() {
  double least = std::numeric_limits<double>::infinity();
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const bool is_second = line.starts_with("0::");
    if (!is_second && line.find(":memory:") == std::string::npos) continue;
    const std::filesystem::path root = is_second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* name = is_second ? "memory.max" : "memory.limit_in_bytes";
    std::filesystem::path folder = line.substr(line.rfind(':') + 1);
    for (; folder.has_relative_path(); folder = folder.parent_path())
      least = std::min(least, number_in(root / folder.relative_path() / name));
    least = std::min(least, number_in(root / name));
  }
  return least;
}

double address_space_limit() {
  rlimit limit{};
  const bool is_limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_limited ? static_cast<double>(limit.rlim_cur) : std::numeric_limits<double>::infinity();
}

/// Attention has four matrices of width * width, the MLP two of four times that.
double elements_of_blocks(const Config& config) {
  const auto width = static_cast<double>(config.model.n_embd);
  return 12 * static_cast<double>(config.model.n_layer) * width * width;
}

}  // namespace

double count_matrix_elements(const Config& config, int64_t vocabulary_size) {
  const double tables = config.model.tie_weights ? 1 : 2;
  const double rows =
      tables * static_cast<double>(vocabulary_size) + static_cast<double>(config.data.block_size);
  return rows * static_cast<double>(config.model.n_embd) + elements_of_blocks(config);
}

std::vector<MemoryNeed> least_memory(const Config& config, int64_t vocabulary_size, int64_t samples) {
  const auto width = static_cast<double>(config.model.n_embd);
  const auto block_size = static_cast<double>(config.data.block_size);
  const auto vocabulary = static_cast<double>(vocabulary_size);
  const double blocks = elements_of_blocks(config);
  const double embeddings = count_matrix_elements(config, vocabulary_size) - blocks;
  const Factor by_width{"model.n_embd", config.model.n_embd, 768};
  const Factor by_vocabulary{"model.vocab_size", vocabulary_size, 50304};
  const Factor by_block{"data.block_size", config.data.block_size, 1024};
  const std::string key = blocks > embeddings
                              ? dominant({by_width, {"model.n_layer", config.model.n_layer, 12}})
                              : dominant({by_width, by_vocabulary, by_block});
  const std::string smaller = "train a smaller model";
  const double weights = 4 * (embeddings + blocks);

  // A micro-batch, which has no more samples than a replica has.
  const auto replicas = static_cast<double>(std::max<int64_t>(config.dist.replicas, 1));
  const int64_t micro_batch = config.train.batch_size / config.train.accumulate;
  const auto batch = static_cast<double>(micro_batch);
  const double rows = std::min(batch, static_cast<double>(samples) / replicas + 1) * block_size;
  const auto most_rows = static_cast<double>(config.train.logit_rows);
  const bool in_pieces = config.train.logit_rows > 0;
  const double logits = (in_pieces ? std::min(rows, most_rows) : rows) * vocabulary;
  // The inputs of attention (3 widths), of its projection (1), of the GELU (4) and of what follows it (4)
  // wait for the backward pass; 10 of these leave room for what may become smaller.
  const double activations = 10 * static_cast<double>(config.model.n_layer) * width * rows;
  const double element = config.train.precision == "bf16" ? 2 : 4;
  const Factor by_batch{"train.batch_size", micro_batch, 64};
  const std::string shorter = "lower it, or raise train.accumulate";
  return {{"parameters", weights, key, smaller},
          {"gradients", weights, key, smaller},
          {"moments of AdamW", 2 * weights, key, smaller},
          {"activations", element * activations,
           dominant({by_batch, by_block, by_width, {"model.n_layer", config.model.n_layer, 12}}), shorter},
          {"logits", element * logits, dominant({by_batch, by_block, by_vocabulary}),
           in_pieces ? "lower train.logit_rows" : shorter + ", or set train.logit_rows"}};
}

MemoryLimit memory_limit(const World& world) {
  if (const int gpu = gpu_of(current_stream()); gpu >= 0) {
    const auto bytes = static_cast<double>(gpu_properties(gpu).memory_bytes);
    return {bytes, concat("this GPU has ", bytes_text(bytes))};
  }
  // Pages that nobody touches for a while may go to the swap, beyond what a control group limits.
  const double swap = 1024 * number_in("/proc/meminfo", "SwapTotal:");
  const double machine = 1024 * number_in("/proc/meminfo", "MemTotal:") + swap;
  const double share = machine / world.local_size();
  // Not divided: each rank may have a group of its own.
  const double group = control_group_limit() + swap;
  const double own = address_space_limit();
  if (own < std::min(share, group))
    return {own, concat("its address space is limited to ", bytes_text(own), " (ulimit -v)")};
  if (group < share) return {group, concat("its control group has ", bytes_text(group))};
  return {share,
          concat("this machine has ", bytes_text(machine), " for ", counted(world.local_size(), "rank"))};
}

void require_memory(const Config& config, const std::vector<MemoryNeed>& needs, const MemoryLimit& limit) {
  double total = 0;
  for (const MemoryNeed& need : needs) total += need.bytes;
  if (total <= limit.bytes) return;
  const MemoryNeed& largest = *std::ranges::max_element(needs, {}, &MemoryNeed::bytes);
  std::string all;
  for (const MemoryNeed& need : needs)
    all += concat(all.empty() ? "" : ", ", need.name, " ", bytes_text(need.bytes));
  throw UserError(concat(largest.key, " = ", find_config_key(largest.key, "memory").text(config),
                         ": a rank needs at least ", bytes_text(total), " (", all, "), but ", limit.owner,
                         "; ", largest.advice));
}

}  // namespace lockstep
