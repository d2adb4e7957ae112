// SPDX-License-Identifier: Apache-2.0
// Compares Llama, Qwen2 and Qwen3 on a GPU with the CPU: forward, backward, and generation with a cache.
#include "models/llama/llama.h"

#include <map>

#include "parameters/parameter_space.h"
#include "support/cuda.h"
#include "support/gradient_check.h"

namespace lockstep {
namespace {

constexpr int64_t vocabulary = 65, time = 40, batch = 2;

/// The structures of Llama, Qwen2 and Qwen3. Heads are apart from the width.
enum class Kind { llama, qwen2, qwen3 };
constexpr Kind kinds[] = {Kind::llama, Kind::qwen2, Kind::qwen3};

std::unique_ptr<Llama> model_of(Kind kind, double dropout = 0.0) {
  return std::make_unique<Llama>(Llama::Options{.vocabulary = vocabulary,
                                                .rows = 128,
                                                .block_size = 48,
                                                .layers = 2,
                                                .heads = {4, 2},
                                                .head_size = 16,
                                                .width = 48,
                                                .hidden = 88,
                                                .dropout = dropout,
                                                .has_biases = kind == Kind::qwen2,
                                                .has_qk_norms = kind == Kind::qwen3,
                                                .tie_weights = kind != Kind::qwen2},
                                 7);
}

using Values = std::vector<double>;

/// Returns the loss and every gradient by name.
std::map<std::string, Values> run(const Stream& stream, Kind kind, DType precision, double dropout) {
  set_current_stream(stream);
  std::map<std::string, Values> results;
  {
    const auto model = model_of(kind, dropout);
    ParameterSpace space(model->parameters());
    space.set_precision(precision);
    const Tensor ids = from_values(random_id_values(batch * time, vocabulary, 1), {batch, time});
    const Tensor targets = from_values(random_id_values(batch * time, vocabulary, 2), {batch, time});
    const Tensor loss = model->loss(ids, targets, {.training = true, .seed = 3, .step = 5, .sample = 8}, 0);
    results["loss"] = {item(loss)};
    backward(loss);
    for (const auto& [name, tensor] : model->parameters()) results[name] = to_doubles(tensor.grad());
  }
  set_current_stream(cpu_stream());
  return results;
}

void expect_near(const std::map<std::string, Values>& actual, const std::map<std::string, Values>& expected,
                 double loss_bound, double gradient_bound) {
  EXPECT_NEAR(actual.at("loss")[0], expected.at("loss")[0], loss_bound);
  for (const auto& [name, values] : expected)
    if (name != "loss") {
      EXPECT_LE(relative_error(actual.at(name), values), gradient_bound) << name;
    }
}

// The deepest path has about 200 roundings of 2^-24, and exponentials accurate to 2^-22. Each rounding of
// bf16 is 2^-9.
TEST(LlamaOnGpu, GradientsAreTheCpus) {
  LOCKSTEP_NEEDS_GPU();
  for (const Kind kind : kinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    const auto exact = run(cpu_stream(), kind, DType::f32, 0.0);
    expect_near(run(gpu_stream(), kind, DType::f32, 0.0), exact, 2e-6, 5e-5);
    expect_near(run(gpu_stream(), kind, DType::bf16, 0.0), exact, 0.02, 3e-2);
  }
  expect_near(run(gpu_stream(), Kind::qwen3, DType::f32, 0.2),
              run(cpu_stream(), Kind::qwen3, DType::f32, 0.2), 2e-6, 5e-5);
}

// Two texts are read together, cut in different places.
TEST(LlamaOnGpu, ACacheGivesTheCpusLogits) {
  LOCKSTEP_NEEDS_GPU();
  const auto logits_on = [](const Stream& stream, Kind kind) {
    set_current_stream(stream);
    Values logits;
    {
      const auto model = model_of(kind);
      KeyValueCache cache{.texts = 2, .capacity = 48};
      const std::vector<int32_t> ids = random_id_values(time, vocabulary, 1);
      const auto part = [&](int64_t text, int64_t begin, int64_t end) {
        return NextTokens{.text = text, .past = begin, .ids = {ids.begin() + begin, ids.begin() + end}};
      };
      for (const auto& parts :
           {std::vector{part(0, 0, 5), part(1, 0, 30)}, {part(0, 5, 6), part(1, 30, 31)}, {part(0, 6, 40)}})
        for (const double logit : to_doubles(model->next_logits(parts, cache))) logits.push_back(logit);
    }
    set_current_stream(cpu_stream());
    return logits;
  };
  for (const Kind kind : kinds)
    EXPECT_LE(relative_error(logits_on(gpu_stream(), kind), logits_on(cpu_stream(), kind)), 5e-5);
}

TEST(LlamaOnGpu, BitsDoNotDependOnTheSchedule) {
  LOCKSTEP_NEEDS_GPU();
  std::vector<std::map<std::string, Values>> runs;
  for_each_schedule([&] { runs.push_back(run(gpu_stream(), Kind::qwen3, DType::bf16, 0.2)); });
  for (const auto& other : runs) EXPECT_EQ(other, runs.front());
}

}  // namespace
}  // namespace lockstep
