// SPDX-License-Identifier: Apache-2.0
// Compares Llama, Qwen2 and Qwen3 on a GPU with the CPU: forward, backward, and generation with a cache.
#include "lockstep/models/llama/llama.h"

#include "models/cuda/model_on_gpu.h"

namespace lockstep::model_on_gpu {
namespace {

constexpr LlamaKind kinds[] = {LlamaKind::llama, LlamaKind::qwen2, LlamaKind::qwen3};

Llama model_of(LlamaKind kind, double dropout = 0.0) {
  return Llama({.kind = kind,
                .vocabulary = vocabulary,
                .rows = 128,
                .block_size = 48,
                .layers = 2,
                .heads = {4, 2},
                .head_size = 16,
                .width = 48,
                .hidden = 88,
                .dropout = dropout,
                .tie_weights = kind != LlamaKind::qwen2},
               7);
}

std::map<std::string, Values> run(const Stream& stream, LlamaKind kind, DType precision, double dropout) {
  return gradients_on(stream, [&] { return model_of(kind, dropout); }, {.precision = precision});
}

// The deepest path has about 200 roundings of 2^-24, and exponentials accurate to 2^-22. Each rounding of
// bf16 is 2^-9.
TEST(LlamaOnGpu, GradientsAreTheCpus) {
  LOCKSTEP_NEEDS_GPU();
  for (const LlamaKind kind : kinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    const auto exact = run(cpu_stream(), kind, DType::f32, 0.0);
    expect_near(run(gpu_stream(), kind, DType::f32, 0.0), exact, 2e-6, 5e-5);
    expect_near(run(gpu_stream(), kind, DType::bf16, 0.0), exact, 0.02, 3e-2);
  }
  expect_near(run(gpu_stream(), LlamaKind::qwen3, DType::f32, 0.2),
              run(cpu_stream(), LlamaKind::qwen3, DType::f32, 0.2), 2e-6, 5e-5);
}

TEST(LlamaOnGpu, ACacheGivesTheCpusLogits) {
  LOCKSTEP_NEEDS_GPU();
  for (const LlamaKind kind : kinds) {
    const auto make = [&] { return model_of(kind); };
    EXPECT_LE(relative_error(cached_logits_on(gpu_stream(), make, DType::f32),
                             cached_logits_on(cpu_stream(), make, DType::f32)),
              5e-5);
  }
}

TEST(LlamaOnGpu, BitsDoNotDependOnTheSchedule) {
  LOCKSTEP_NEEDS_GPU();
  std::vector<std::map<std::string, Values>> runs;
  for_each_schedule([&] { runs.push_back(run(gpu_stream(), LlamaKind::qwen3, DType::bf16, 0.2)); });
  for (const auto& other : runs) EXPECT_EQ(other, runs.front());
}

}  // namespace
}  // namespace lockstep::model_on_gpu
