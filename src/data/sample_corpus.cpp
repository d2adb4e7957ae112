// SPDX-License-Identifier: Apache-2.0
#include "data/sample_corpus.h"

#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/random.h"

namespace lockstep {
namespace {

constexpr uint64_t seed = 1564;

/// What may stand at one part of a line, all of the same length: words drawn uniformly, or one fixed text.
using Words = std::span<const std::string_view>;

constexpr std::string_view names[] = {"Ann", "Bob", "Cal", "Dot", "Eve", "Gus", "Ida", "Jon",
                                      "Kay", "Leo", "Mia", "Ned", "Pam", "Roy", "Sue", "Tom"};
constexpr std::string_view verbs[] = {"bit", "cut", "fed", "fit", "got", "had", "hid", "hit",
                                      "led", "let", "met", "put", "ran", "saw", "set", "won"};
constexpr std::string_view adjectives[] = {"apt", "big", "coy", "dry", "fat", "hot", "icy", "lax",
                                           "mad", "new", "old", "pet", "raw", "sad", "tan", "wet"};
constexpr std::string_view nouns[] = {"ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen",
                                      "jay", "kid", "moa", "owl", "pig", "ram", "sow", "yak"};
constexpr std::string_view dash[] = {"- "}, space[] = {" "}, semicolon[] = {"; "}, colon[] = {": "},
                           end[] = {"\n"};

/// A part of a line and the random word of the line that decides it: its echo has the same one.
struct Part {
  Words words;
  size_t draw = 0;
};

constexpr std::array<Part, 15> line{{{dash},
                                     {names, 0},
                                     {space},
                                     {verbs, 1},
                                     {space},
                                     {adjectives, 2},
                                     {space},
                                     {nouns, 3},
                                     {semicolon},
                                     {adjectives, 2},
                                     {space},
                                     {nouns, 3},
                                     {colon},
                                     {names, 0},
                                     {end}}};

std::string_view pick(Words words, uint32_t random) { return words[uint64_t{random} * words.size() >> 32]; }

/// One character of a line: which part it belongs to and its place there.
struct Place {
  size_t part;
  size_t letter;
};

std::vector<Place> places() {
  std::vector<Place> all;
  for (size_t part = 0; part < line.size(); ++part)
    for (size_t letter = 0; letter < line[part].words[0].size(); ++letter) all.push_back({part, letter});
  return all;
}

/// How often each pair of neighbouring characters occurs, in the mean over lines and places.
using PairTable = std::array<std::array<double, 128>, 128>;

void count_pairs(Place first, Place second, PairTable& pairs) {
  const Words a = line[first.part].words;
  const Words b = line[second.part].words;
  const bool same_word = first.part == second.part;
  const double weight = 1.0 / static_cast<double>(a.size() * (same_word ? 1 : b.size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = same_word ? i : 0; j < (same_word ? i + 1 : b.size()); ++j)
      pairs[static_cast<size_t>(a[i][first.letter])][static_cast<size_t>(b[j][second.letter])] += weight;
}

}  // namespace

std::string SampleCorpus::text(int64_t lines) {
  expect(lines >= 0, lines, " lines");
  std::string text;
  text.reserve(static_cast<size_t>(lines * line_characters));
  for (int64_t i = 0; i < lines; ++i) {
    const auto random = philox(seed, {static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0});
    for (const Part& part : line) text += pick(part.words, random[part.draw]);
  }
  return text;
}

double SampleCorpus::entropy_per_character() {
  double entropy = 0;
  for (const Words& words : {Words(names), Words(verbs), Words(adjectives), Words(nouns)})
    entropy += std::log(static_cast<double>(words.size()));
  return entropy / static_cast<double>(line_characters);
}

double SampleCorpus::best_bigram_loss() {
  const std::vector<Place> all = places();
  const auto pairs = std::make_unique<PairTable>();
  for (size_t i = 0; i < all.size(); ++i) count_pairs(all[i], all[(i + 1) % all.size()], *pairs);
  double loss = 0;
  for (const auto& row : *pairs) {
    double total = 0;
    for (double count : row) total += count;
    for (double count : row)
      if (count > 0) loss -= count * std::log(count / total);
  }
  return loss / static_cast<double>(all.size());
}

}  // namespace lockstep
