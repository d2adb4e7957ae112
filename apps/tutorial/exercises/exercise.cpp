// SPDX-License-Identifier: Apache-2.0
#include "apps/tutorial/exercises/exercise.h"

#include <bit>
#include <chrono>
#include <fstream>
#include <iostream>
#include <thread>

#include "lockstep/core/memory.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

/// Prints the line with one write, because ranks may be threads that print at the same time.
void print(const std::string& line) { std::cout << line + "\n" << std::flush; }

constexpr const char* downloads = "downloads";

}  // namespace

std::string bits_of(float loss) {
  return concat(hexadecimal(std::bit_cast<uint32_t>(loss), 8), " (", loss, ")");
}

void report_step(int64_t step, float loss) { print(concat("step ", step, " loss_bits ", bits_of(loss))); }

void report_evaluation(int64_t step, float loss) {
  print(concat("step ", step, " evaluation_bits ", bits_of(loss)));
}

void report_words(int64_t step, const std::string& words) { print(concat("step ", step, " ", words)); }

void report_memory(int64_t step) {
  for (const MemoryUse& use : memory_table())
    if (use.label == "other")
      report_words(step, concat("at most ", use.peak_bytes >> 10, " KiB for activations and the backward"));
}

void report_ranks(const World& world, int64_t step, const std::string& words) {
  const std::vector<std::string> all = world.communicator().all_gather_text(words);
  if (!world.is_first()) return;
  for (size_t rank = 0; rank < all.size(); ++rank) report_words(step, concat("rank ", rank, " ", all[rank]));
}

Numbers numbers(const Tensor& tensor) {
  const float* first = tensor.data<float>();
  return {first, first + tensor.size()};
}

Numbers add(const Numbers& a, const Numbers& b) {
  expect(a.size() == b.size(), a.size(), " numbers cannot be added to ", b.size());
  Numbers sums = a;
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += b[i];
  return sums;
}

Numbers tree_sum(std::vector<Numbers> parts) {
  expect(!parts.empty(), "there are no parts to add");
  while (parts.size() > 1) {
    std::vector<Numbers> sums;
    for (size_t i = 0; i < parts.size(); i += 2)
      sums.push_back(i + 1 < parts.size() ? add(parts[i], parts[i + 1]) : parts[i]);
    parts = sums;
  }
  return parts[0];
}

std::vector<Numbers> cut(const Numbers& all, int pieces) {
  const size_t size = all.size() / static_cast<size_t>(pieces);
  expect(size * static_cast<size_t>(pieces) == all.size(), all.size(), " numbers cannot be cut into ", pieces,
         " equal pieces");
  std::vector<Numbers> parts;
  for (auto begin = all.begin(); begin != all.end(); begin += static_cast<std::ptrdiff_t>(size))
    parts.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
  return parts;
}

Numbers tree_mean(const std::vector<Numbers>& parts) {
  Numbers mean = tree_sum(parts);
  for (float& number : mean) number *= 1.0f / static_cast<float>(parts.size());
  return mean;
}

float tree_mean(const std::vector<float>& parts) {
  return tree_mean(cut(parts, static_cast<int>(parts.size())))[0];
}

Numbers mean_over_ranks(const World& world, const Numbers& mine) {
  Numbers all(mine.size() * static_cast<size_t>(world.size()));
  world.communicator().all_gather(mine.data(), static_cast<int64_t>(mine.size() * sizeof(float)), all.data());
  return tree_mean(cut(all, world.size()));
}

float mean_over_ranks(const World& world, float mine) { return mean_over_ranks(world, Numbers{mine})[0]; }

Node pretend_node(const World& world, int nodes) {
  require(nodes >= 1 && nodes <= world.size(), "--nodes ", nodes,
          ": each node needs a rank, and the number of ranks is ", world.size());
  const std::string name = concat("node", world.rank() * nodes / world.size());
  std::filesystem::create_directory(name);
  return {.name = name, .disk = name + "/"};
}

void download_weights(const Node& node, const std::string& path) {
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const Mlp pretrained({20, 1});
  initialize(pretrained.parameters(), /*seed=*/7);
  write_file(path, to_safetensors({.tensors = pretrained.parameters(), .metadata = {}}));
  std::ofstream(node.disk + downloads, std::ios::app) << path + "\n" << std::flush;
}

std::string files_on_disks(int nodes) {
  std::string words = "files:";
  for (int node = 0; node < nodes; ++node) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(concat("node", node)))
      if (entry.path().filename() != downloads) files.push_back(entry.path().generic_string());
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) words += " " + file;
    std::ifstream list(concat("node", node, "/", downloads));
    int count = 0;
    for (std::string path; std::getline(list, path);) ++count;
    if (count > 0) words += concat(" (", count, count == 1 ? " download)" : " downloads)");
  }
  return words;
}

}  // namespace lockstep
