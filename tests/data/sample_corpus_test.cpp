// SPDX-License-Identifier: Apache-2.0
#include "support/sample_corpus.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <vector>

#include "lockstep/data/corpus.h"
#include "lockstep/data/dataset.h"

namespace lockstep {
namespace {

constexpr size_t line_characters = SampleCorpus::line_characters;

/// Returns the 64-bit FNV-1a hash of a text.
uint64_t fingerprint(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char character : text) hash = (hash ^ character) * 0x100000001b3u;
  return hash;
}

/// Returns the mean loss of the best predictions of text[position] from the last `seen` characters. It uses
/// counts over the whole text, which include the answers. So the result is slightly below the true loss.
double loss_by_counts(const std::string& text, size_t seen) {
  std::map<std::string, std::map<char, double>> counts;
  for (size_t i = seen; i < text.size(); ++i) ++counts[text.substr(i - seen, seen)][text[i]];
  double loss = 0;
  for (const auto& [context, next] : counts) {
    double total = 0;
    for (const auto& [character, count] : next) total += count;
    for (const auto& [character, count] : next) loss -= count * std::log(count / total);
  }
  return loss / static_cast<double>(text.size() - seen);
}

TEST(SampleCorpus, IsTheSameEveryTime) {
  const std::string text = sample_text();
  EXPECT_EQ(text.size(), 32000u * line_characters);
  EXPECT_EQ(text.substr(0, line_characters), "- Pam saw old bee; old bee: Pam\n");
  EXPECT_EQ(fingerprint(text), 10144236275204009726u);
  EXPECT_EQ(text.substr(0, 1000 * line_characters), sample_text(1000));
}

TEST(SampleCorpus, EchoesWhatALineBeganWith) {
  const std::string text = sample_text(500);
  for (size_t start = 0; start < text.size(); start += line_characters) {
    const std::string line = text.substr(start, line_characters);
    EXPECT_EQ(line.substr(10, 7), line.substr(19, 7)) << line;  // adjective and noun
    EXPECT_EQ(line.substr(2, 3), line.substr(28, 3)) << line;   // name
    EXPECT_EQ(line.front(), '-');
    EXPECT_EQ(line.back(), '\n');
    EXPECT_EQ(line.find('-', 1), std::string::npos) << "only the start of a line may look like one";
  }
}

TEST(SampleCorpus, HasHalfABitACharacter) {
  EXPECT_NEAR(SampleCorpus::entropy_per_character, std::log(2.0) / 2, 1e-15);
}

// Lines are drawn independently from one distribution, so the entropy of the process is that of one line. It
// is the sum over the line's four words, if they are independent (see ItsChoicesAreIndependent).
TEST(SampleCorpus, ItsTextHasTheStatedEntropy) {
  const std::string text = sample_text();
  const size_t lines = text.size() / line_characters;
  const std::vector<std::pair<size_t, size_t>> words{{2, 3}, {6, 3}, {10, 3}, {14, 3}};
  double entropy = 0;
  for (const auto& [begin, length] : words) {
    std::map<std::string, double> counts;
    for (size_t i = 0; i < lines; ++i) ++counts[text.substr(i * line_characters + begin, length)];
    EXPECT_EQ(counts.size(), 16u);
    for (const auto& [word, count] : counts)
      entropy -= count / static_cast<double>(lines) * std::log(count / static_cast<double>(lines));
  }
  // Counts of n draws among k values underestimate the entropy by (k - 1) / 2n nats on average (Miller 1955).
  // The spread is smaller than that. There are four words of 16 values.
  const double bias = 4 * 15 / (2.0 * static_cast<double>(lines));
  const double per_character = entropy / line_characters;
  EXPECT_LT(per_character, SampleCorpus::entropy_per_character);
  EXPECT_NEAR(per_character, SampleCorpus::entropy_per_character, 3 * bias / line_characters);
}

// A window that begins with a line contains the words that its echoes repeat. The best mean loss of a window
// is then the entropy of the process.
TEST(SampleCorpus, ValidationWindowsBeginWithALine) {
  const std::string text = sample_text();
  const std::vector<int32_t> tokens(text.begin(), text.end());
  for (const int64_t block_size : {32, 64, 128, 256}) {
    const Split<TokenWindows> split = split_tokens(tokens, block_size, 0.9);
    std::vector<int32_t> input(static_cast<size_t>(block_size));
    std::vector<int32_t> target(static_cast<size_t>(block_size));
    for (int64_t i = 0; i < split.validation->size(); ++i) {
      split.validation->fetch(i, input.data(), target.data());
      ASSERT_EQ(input.front(), '-');
      ASSERT_EQ(target.back(), '-');
    }
  }
}

TEST(SampleCorpus, ItsChoicesAreIndependent) {
  const std::string text = sample_text();
  std::map<std::string, double> pairs;
  for (size_t start = 0; start < text.size(); start += line_characters)
    ++pairs[text.substr(start + 2, 3) + text.substr(start + 6, 3)];
  ASSERT_EQ(pairs.size(), 256u);
  double chi_squared = 0;
  for (const auto& [pair, count] : pairs) chi_squared += (count - 125) * (count - 125) / 125;
  EXPECT_LT(chi_squared, 255 + 6 * std::sqrt(2 * 255.0));
}

TEST(SampleCorpus, BestBigramLossIsThatOfItsCounts) {
  const std::string text = sample_text();
  // A million characters determine the few hundred probabilities of a bigram model to about 1e-3 nats.
  EXPECT_NEAR(SampleCorpus::best_bigram_loss, loss_by_counts(text, 1), 2e-3);
  EXPECT_GT(SampleCorpus::best_bigram_loss, 1.25 * 1.05 * SampleCorpus::entropy_per_character);
}

TEST(SampleCorpus, ShortContextsDoNotReachItsEntropy) {
  const std::string text = sample_text();
  for (size_t seen : {2u, 6u})
    EXPECT_GT(loss_by_counts(text, seen), 1.3 * SampleCorpus::entropy_per_character);
}

}  // namespace
}  // namespace lockstep
