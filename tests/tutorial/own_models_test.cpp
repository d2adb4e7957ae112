// SPDX-License-Identifier: Apache-2.0
// The models of docs/own_models.md and docs/recurrent_models.md learn, and the number of ranks does not
// change their result.
#include <gtest/gtest.h>
#include <string>

#include "tests/support/program.h"
#include "tests/support/sample_corpus.h"

namespace lockstep {
namespace {

struct Trained {
  std::string parameters;
  double loss = 0.0;  ///< the last printed loss
};

/// Trains 200 steps with four replicas.
Trained train(const std::string& model, int ranks) {
  const TemporaryDirectory directory;
  const Outcome outcome = run_command("cd " + directory.path() + " && " + program(model) +
                                      " 200 --replicas 4 --ranks " + std::to_string(ranks));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  const std::string mark = "Step 200 | Loss: ";
  const size_t at = outcome.out.find(mark);
  if (at == std::string::npos) {
    ADD_FAILURE() << outcome.out;
    return {};
  }
  return {read_text(directory / (model + ".safetensors")), std::stod(outcome.out.substr(at + mark.size()))};
}

TEST(OwnModels, TheBigramComesNearTheBestThatABigramCanDo) {
  const Trained one = train("bigram", 1), three = train("bigram", 3);
  EXPECT_LT(one.loss, SampleCorpus::best_bigram_loss + 0.1);
  EXPECT_GT(one.loss, SampleCorpus::best_bigram_loss - 0.1)
      << "the model has seen the characters that it must predict";
  EXPECT_TRUE(one.parameters == three.parameters);
}

TEST(OwnModels, AttentionIsClearlyBetterThanAnyBigram) {
  const Trained one = train("attention", 1), three = train("attention", 3);
  EXPECT_LT(one.loss, SampleCorpus::best_bigram_loss - 0.5);
  EXPECT_GT(one.loss, SampleCorpus::entropy_per_character)
      << "the model has seen the characters that it must predict";
  EXPECT_TRUE(one.parameters == three.parameters);
}

TEST(OwnModels, AnLstmIsClearlyBetterThanAnyBigram) {
  const Trained one = train("lstm", 1), two = train("lstm", 2);
  EXPECT_LT(one.loss, SampleCorpus::best_bigram_loss - 0.5);
  EXPECT_TRUE(one.parameters == two.parameters);
}

TEST(OwnModels, AConvolutionTellsDirectionsApart) {
  const Trained one = train("convolution", 1), two = train("convolution", 2);
  EXPECT_LT(one.loss, 0.3) << "guessing has 0.69";
  EXPECT_TRUE(one.parameters == two.parameters);
}

}  // namespace
}  // namespace lockstep
