// SPDX-License-Identifier: Apache-2.0
// A GPT whose backward computes parts of the forward again has the same bits and needs less memory.
#include <gtest/gtest.h>
#include <vector>

#include "lockstep/core/memory.h"
#include "lockstep/models/gpt2/gpt.h"
#include "support/gradient_check.h"

namespace lockstep::recompute_test {
namespace {

using What = Recompute::What;

constexpr int64_t vocabulary = 31, time_steps = 12, width = 48, batch = 4;
const Context training{.training = true, .seed = 9, .step = 4, .sample = 20};

Gpt::Options options_of(const Recompute& recompute, int64_t layers = 5) {
  return {.vocabulary = vocabulary,
          .block_size = time_steps,
          .layers = layers,
          .heads = 3,
          .width = width,
          .recompute = recompute};
}

Tensor loss_of(const Gpt& model) {
  return model.loss(random_ids({batch, time_steps}, vocabulary, 1),
                    random_ids({batch, time_steps}, vocabulary, 2), training);
}

/// The loss, the accumulated gradients of two backwards, and the order in which the gradients were ready.
struct Outcome {
  std::vector<Tensor> bits;
  std::vector<std::string> ready;
};

Outcome outcome_of(const Gpt::Options& options) {
  const Gpt model(options, 7);
  Outcome outcome;
  for (const auto& [name, tensor] : model.parameters()) {
    leaf_gradient(tensor).accumulate = true;
    leaf_gradient(tensor).ready = [&outcome, name = name] { outcome.ready.push_back(name); };
  }
  for (int micro = 0; micro < 2; ++micro) {
    const Tensor loss = loss_of(model);
    outcome.bits.push_back(loss.detach());
    backward(loss, 0.5);
  }
  for (const NamedTensor& parameter : model.parameters()) outcome.bits.push_back(parameter.tensor.grad());
  return outcome;
}

TEST(Recompute, NoWayShowsInTheBits) {
  for (const double dropout : {0.0, 0.3})
    for (const bool is_tied : {true, false}) {
      const auto run = [&](const Recompute& recompute) {
        Gpt::Options options = options_of(recompute);
        options.dropout = dropout;
        options.tie_weights = is_tied;
        return outcome_of(options);
      };
      const Outcome kept = run({});
      for (const Recompute& recompute :
           {Recompute{What::attention}, Recompute{What::block}, Recompute{What::segments, 1},
            Recompute{What::segments, 2}, Recompute{What::segments, 5}}) {
        const Outcome again = run(recompute);
        EXPECT_EQ(again.ready, kept.ready);
        ASSERT_EQ(again.bits.size(), kept.bits.size());
        for (size_t i = 0; i < kept.bits.size(); ++i)
          EXPECT_TRUE(has_same_bits(again.bits[i], kept.bits[i])) << i;
      }
    }
}

/// Returns the bytes that a loss keeps for its backward.
int64_t kept_bytes(const Recompute& recompute, int64_t layers) {
  const Gpt model(options_of(recompute, layers), 7);
  for (const NamedTensor& parameter : model.parameters()) parameter.tensor.view();  // allocated at first use
  const int64_t before = memory_table().back().current_bytes;
  const Tensor loss = loss_of(model);
  return memory_table().back().current_bytes - before;
}

TEST(Recompute, KeepsWhatItSays) {
  // The activation is a multiple of the pool's granularity, so that byte counts are exact.
  constexpr int64_t activation = batch * time_steps * width * 4;
  static_assert(activation % 1024 == 0);
  const int64_t of_a_block = kept_bytes({}, 5) - kept_bytes({}, 4);
  EXPECT_GT(of_a_block, 14 * activation);
  EXPECT_EQ(kept_bytes({What::block}, 5) - kept_bytes({What::block}, 4), activation);
  // Recomputing attention frees the norm before it, the queries, keys and values, and its own result.
  EXPECT_LT(kept_bytes({What::attention}, 5), kept_bytes({}, 5) - 5 * 5 * activation);
  // The loss keeps all activations of the last segment and the inputs of the segments before.
  EXPECT_EQ(kept_bytes({What::segments, 2}, 4), kept_bytes({}, 2) + activation);
  EXPECT_EQ(kept_bytes({What::segments, 3}, 6), kept_bytes({}, 2) + 2 * activation);
}

TEST(Recompute, MoreSegmentsThanBlocksAreAnError) {
  for (const int64_t segments : {int64_t{0}, int64_t{6}})
    EXPECT_THROW(Gpt(options_of({What::segments, segments}), 7), Error);
}

}  // namespace
}  // namespace lockstep::recompute_test
