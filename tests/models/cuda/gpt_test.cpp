// SPDX-License-Identifier: Apache-2.0
// Compares the forward and backward of a whole GPT on a GPU with the CPU, in single precision and 16 bits.
#include "lockstep/models/gpt2/gpt.h"

#include <cmath>

#include "lockstep/models/gpt2/gpt2_block.h"
#include "lockstep/tensor/checkpoint.h"
#include "models/cuda/model_on_gpu.h"

namespace lockstep::model_on_gpu {
namespace {

Gpt::Options options_of(double dropout) {
  return {
      .vocabulary = vocabulary, .block_size = 48, .layers = 2, .heads = 2, .width = 64, .dropout = dropout};
}

std::map<std::string, Values> run(const Stream& stream, DType precision, double dropout,
                                  int64_t rows_at_once = 0, double scale = 1.0, int64_t rows = 0) {
  Gpt::Options options = options_of(dropout);
  options.rows = rows;
  return gradients_on(stream, [&] { return Gpt(options, 7); },
                      {.precision = precision, .rows_at_once = rows_at_once, .scale = scale});
}

// The deepest path has about 200 roundings of 2^-24, and exponentials accurate to 2^-22.
TEST(GptOnGpu, SinglePrecisionGivesTheCpusGradients) {
  LOCKSTEP_NEEDS_GPU();
  for (const double dropout : {0.0, 0.2})
    expect_near(run(gpu_stream(), DType::f32, dropout), run(cpu_stream(), DType::f32, dropout), 2e-6, 5e-5);
}

TEST(GptOnGpu, ACacheGivesTheCpusLogits) {
  LOCKSTEP_NEEDS_GPU();
  const auto logits_on = [](const Stream& stream, DType precision) {
    return cached_logits_on(
        stream, [] { return Gpt(options_of(0.0), 7); }, precision);
  };
  EXPECT_LE(relative_error(logits_on(gpu_stream(), DType::f32), logits_on(cpu_stream(), DType::f32)), 5e-5);
  EXPECT_LE(relative_error(logits_on(gpu_stream(), DType::bf16), logits_on(cpu_stream(), DType::f32)), 2e-2);
}

// A bias in the product's epilogue gives rows beyond the vocabulary a probability of zero.
TEST(GptOnGpu, RowsBeyondTheVocabularyTakeNoPart) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType precision : {DType::f32, DType::bf16, DType::f16}) {
    const auto found = run(gpu_stream(), precision, 0.0, 0, 1.0, 128);
    const Values& tokens = found.at("transformer.wte.weight");
    for (size_t i = vocabulary * 64; i < tokens.size(); ++i) ASSERT_EQ(tokens[i], 0.0) << name(precision);
    if (precision == DType::f32)
      expect_near(found, run(cpu_stream(), precision, 0.0, 0, 1.0, 128), 2e-6, 5e-5);
  }
}

// Each bf16 rounding is 2^-9. Kernel libraries accept a relative error of 1e-2 over two layers for bf16. f16
// has three more bits.
TEST(GptOnGpu, SixteenBitsAreNear) {
  LOCKSTEP_NEEDS_GPU();
  const auto exact = run(cpu_stream(), DType::f32, 0.0);
  expect_near(run(gpu_stream(), DType::bf16, 0.0), exact, 0.02, 2e-2);
  expect_near(run(gpu_stream(), DType::f16, 0.0), exact, 0.005, 5e-3);
}

// A finite result is right, even if an intermediate result overflowed. Loss scaling must be able to see the
// overflow.
TEST(GptOnGpu, AnOverflowOfHalvesIsNeverHidden) {
  LOCKSTEP_NEEDS_GPU();
  const auto exact = run(cpu_stream(), DType::f32, 0.0);
  for (const int power : {16, 21, 24}) {
    const double scale = std::ldexp(1.0, power);
    auto scaled = run(gpu_stream(), DType::f16, 0.0, 0, scale);
    bool is_finite = true;
    for (auto& [name, values] : scaled)
      for (double& value : values) {
        is_finite = is_finite && std::isfinite(value);
        if (name != "loss") value /= scale;
      }
    if (is_finite) expect_near(scaled, exact, 0.005, 5e-3);
    // At 21 only a few gradients overflow, in layer norm. At 24 those of the logits overflow.
    if (power == 16) {
      EXPECT_TRUE(is_finite);
    }
    if (power == 24) {
      EXPECT_FALSE(is_finite);
    }
  }
}

TEST(GptOnGpu, LogitsInPiecesGiveTheSameGradients) {
  LOCKSTEP_NEEDS_GPU();
  expect_near(run(gpu_stream(), DType::f32, 0.0, 24), run(cpu_stream(), DType::f32, 0.0), 2e-6, 5e-5);
}

/// Returns the 16-bit gradients of two blocks and of their input.
std::vector<Values> gradients_of_blocks(bool runs_again) {
  set_current_stream(gpu_stream());
  std::vector<Values> results;
  {
    const Gpt::Options options{.heads = 2, .width = 64, .dropout = 0.2};
    const Gpt2Block first(options, 0), second(options, 1);
    std::vector<NamedTensor> parameters = first.parameters("0.");
    for (const NamedTensor& parameter : second.parameters("1.")) parameters.push_back(parameter);
    for (uint32_t p = 0; p < parameters.size(); ++p) fill_normal(parameters[p].tensor, 0.0, 0.2, 5, p);
    ParameterSpace space(parameters);
    space.set_precision(DType::bf16);
    Tensor x = empty({batch, time, 64}, DType::bf16);
    fill_normal(x, 0.0, 1.0, 5, 99);
    parameters.push_back({"x", x.set_requires_grad()});
    const Context context{.training = true, .seed = 3};
    for (const TransformerBlock* block : {&first, &second}) {
      const auto run = [&context, block](const std::vector<Tensor>& in) { return (*block)(in[0], context); };
      x = runs_again ? checkpoint(run, {x}) : run({x});
    }
    const Tensor dy = empty_like(x);
    fill_normal(dy, 0.0, 1.0, 5, 100);
    backward(x, dy);
    results.push_back(to_doubles(x));
    for (const NamedTensor& parameter : parameters) results.push_back(to_doubles(parameter.tensor.grad()));
  }
  set_current_stream(cpu_stream());
  return results;
}

TEST(GptOnGpu, BlocksThatRunAgainInTheBackwardGiveTheSameBits) {
  LOCKSTEP_NEEDS_GPU();
  EXPECT_EQ(gradients_of_blocks(true), gradients_of_blocks(false));
}

TEST(GptOnGpu, BitsDoNotDependOnTheSchedule) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType precision : {DType::f32, DType::bf16}) {
    std::vector<std::map<std::string, Values>> runs;
    for_each_schedule([&] { runs.push_back(run(gpu_stream(), precision, 0.2)); });
    for (const auto& other : runs) EXPECT_EQ(other, runs.front());
  }
}

}  // namespace
}  // namespace lockstep::model_on_gpu
