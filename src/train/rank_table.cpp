// SPDX-License-Identifier: Apache-2.0
#include "train/rank_table.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>

#include "core/clock.h"
#include "core/error.h"
#include "core/gpu.h"
#include "core/host.h"
#include "core/log.h"
#include "core/version.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

RankDevice this_place() {
  RankDevice place{.host = host_name(), .processor = processor_name(), .gpu = {}, .gpu_id = {}};
  if (device_of(current_stream()) == Device::cpu) return place;
  const GpuProperties properties = gpu_properties(gpu_of(current_stream()));
  place.gpu = properties.name;
  place.gpu_id = properties.uuid.substr(0, sizeof("GPU-12345678") - 1);
  return place;
}

std::string to_text(const RankDevice& place) {
  return concat(place.host, "\n", place.processor, "\n", place.gpu, "\n", place.gpu_id);
}

RankDevice to_place(const std::string& text) {
  RankDevice place;
  std::istringstream lines(text);
  for (std::string* field : {&place.host, &place.processor, &place.gpu, &place.gpu_id})
    std::getline(lines, *field);
  return place;
}

const std::string& model(const RankDevice& place) { return place.gpu.empty() ? place.processor : place.gpu; }

/// Formats a list of ranks: "rank 3", "ranks 0-2,5".
std::string rank_list(const std::vector<size_t>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += concat(i == 0 ? "" : ",", ranks[i]);
    if (last > i) text += concat("-", ranks[last]);
    i = last + 1;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

/// Groups ranks for which `what` is equal. Groups are in the order of their first ranks.
template <class What>
std::vector<std::vector<size_t>> group_ranks(const std::vector<RankDevice>& places, const What& what) {
  std::vector<std::vector<size_t>> groups;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const auto group = std::ranges::find(groups, std::invoke(what, places[rank]), [&](const auto& ranks) {
      return std::invoke(what, places[ranks.front()]);
    });
    (group == groups.end() ? groups.emplace_back() : *group).push_back(rank);
  }
  return groups;
}

#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif
using Vector = float __attribute__((vector_size(lanes * sizeof(float))));

// Twelve chains hide the latency of a fused multiply-add on every processor of the last ten years.
constexpr int chains = 12;

#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("fp-contract=fast"), noinline))
#else
__attribute__((noinline))
#endif
float multiply_add(int64_t rounds, float start) {
#if defined(__clang__)
#pragma clang fp contract(fast)
#endif
  Vector sums[chains];
  for (int chain = 0; chain < chains; ++chain) sums[chain] = Vector{} + (start + static_cast<float>(chain));
  Vector factor = Vector{} + 0.999f;
  Vector term = Vector{} + 1e-3f;
  for (int64_t round = 0; round < rounds; ++round) {
    for (int chain = 0; chain < chains; ++chain) sums[chain] = sums[chain] * factor + term;
  }
  for (int chain = 1; chain < chains; ++chain) sums[0] += sums[chain];
  return sums[0][0];
}

/// Returns a GPU's dense peak from its data sheet, in floating-point operations per second; 0 if unknown.
double gpu_peak_flops(const std::string& gpu_name, DType dtype) {
  struct Peak {
    const char* name;
    double in_fp32;
    double in_16_bits;  ///< on tensor cores, without sparsity
  };
  // Figures are from the data sheets. The first entry whose name occurs in gpu_name applies.
  constexpr Peak peaks[] = {
      {"H100 PCIe", 51e12, 756e12}, {"H100", 67e12, 989.4e12},       {"H200", 67e12, 989.4e12},
      {"GH200", 67e12, 989.4e12},   {"A100", 19.5e12, 312e12},       {"B200", 80e12, 2250e12},
      {"L40S", 91.6e12, 362e12},    {"RTX 4090", 82.6e12, 165.2e12}, {"RTX 5090", 104.8e12, 209.5e12}};
  for (const Peak& peak : peaks)
    if (gpu_name.find(peak.name) != std::string::npos)
      return dtype == DType::f32 ? peak.in_fp32 : peak.in_16_bits;
  return 0.0;
}

}  // namespace

std::vector<std::string> rank_table(const std::vector<RankDevice>& places) {
  std::vector<std::string> lines;
  const auto line_of = [](const RankDevice& place) { return std::pair(place.host, model(place)); };
  for (const std::vector<size_t>& ranks : group_ranks(places, line_of)) {
    const RankDevice& first = places[ranks.front()];
    std::string line = concat(rank_list(ranks), " on ", first.host, ": ", model(first));
    for (const size_t rank : ranks)
      if (!first.gpu.empty()) line += concat(rank == ranks.front() ? " (" : " ", places[rank].gpu_id);
    lines.push_back(first.gpu.empty() ? line : line + ")");
  }
  return lines;
}

std::string mixed_processors(const std::vector<RankDevice>& places) {
  const auto groups = group_ranks(places, &RankDevice::processor);
  if (groups.size() <= 1) return {};
  std::string text = "the processors differ: ";
  for (const std::vector<size_t>& ranks : groups)
    text += concat(&ranks == &groups.front() ? "" : ", ", places[ranks.front()].processor, " (",
                   rank_list(ranks), ")");
  return text + ". The results are the same, but every step waits for the slowest";
}

std::vector<RankDevice> gather_places(const World& world) {
  std::vector<RankDevice> places;
  for (const std::string& text : world.communicator().all_gather_text(to_text(this_place())))
    places.push_back(to_place(text));
  return places;
}

void print_rank_table(const World& world) {
  if (world.size() == 1) return;
  const std::vector<RankDevice> places = gather_places(world);
  if (!world.is_first()) return;
  for (const std::string& line : rank_table(places)) log_info(line);
  if (const std::string warning = mixed_processors(places); !warning.empty()) log_warning(warning);
}

double measure_peak_flops() {
  constexpr int64_t rounds = 200'000;
  double best_seconds = 1e9;
  // Each call reads and writes a volatile value, so that the compiler cannot remove a call.
  volatile float value = multiply_add(rounds, 1.0f);
  for (int repeat = 0; repeat < 8; ++repeat) {
    const auto begin = Clock::now();
    value = multiply_add(rounds, value);
    best_seconds = std::min(best_seconds, seconds_since(begin));
  }
  return 2.0 * lanes * chains * static_cast<double>(rounds) / best_seconds;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const size_t colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  return instruction_set();  // /proc/cpuinfo names the model of x86 processors only
}

double peak_flops(const Config& config, const World& world) {
  const int gpu = gpu_of(current_stream());
  const double of_rank = gpu >= 0 ? gpu_peak_flops(gpu_properties(gpu).name, precision_of(config))
                                  : measure_peak_flops() * static_cast<double>(config.train.threads);
  return of_rank * world.size();
}

}  // namespace lockstep
