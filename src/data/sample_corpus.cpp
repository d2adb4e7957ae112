// SPDX-License-Identifier: Apache-2.0
#include "data/sample_corpus.h"

#include <array>
#include <span>
#include <string_view>

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

}  // namespace lockstep
