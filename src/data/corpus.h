// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

namespace lockstep {

/// Text to train on: valid UTF-8 and not empty.
struct Corpus {
  std::string text;
  std::string source;             ///< the file, the address or "sample"
  std::string description;        ///< for a person: "Shakespeare, 1,115,394 characters from <path>"
  std::vector<size_t> ends = {};  ///< of its documents, in bytes, where it has several
};

/// The path of a file in $LOCKSTEP_DATA_DIR; empty if it is not there.
std::string find_in_data_folder(const std::string& file);

/// UserError if the text is empty or no UTF-8, naming `source`.
Corpus make_corpus(const std::string& title, std::string text, const std::string& source);
/// What a file called `name` holds: a text, or a JSONL file's examples, which who reads them checks.
Corpus corpus_of_file(const std::string& name, const std::string& title, std::string text,
                      const std::string& source);

/// The bytes of a file. UserError naming it.
std::string read_corpus_file(const std::string& path);

/// What data.dataset names that needs no network: `sample` (built in), a text file, at its path or in
/// $LOCKSTEP_DATA_DIR, or a folder: its files *.txt by name, a document each. Throws UserError that says what
/// to do.
Corpus local_corpus(const std::string& name);

/// The built-in corpus (data.dataset = sample): lines like "- Mia met old fox; old fox: Mia". Name, verb,
/// adjective and noun are each drawn from 16 by Philox on the line's number; all else follows from them, also
/// the echo 9 and 26 characters later. So a line of 32 characters holds 16 bits.
class SampleCorpus {
 public:
  static constexpr int64_t line_characters = 32;
  static constexpr int64_t default_lines = 32000;

  /// The same text every time.
  static std::string text(int64_t lines = default_lines);

  /// Nats per character of the process. It is also the least mean loss possible in windows that begin with a
  /// line and are a multiple of 32 characters long, since "-" tells where a line begins.
  static constexpr double entropy_per_character = std::numbers::ln2 / 2;
  /// Nats per character of the best model that sees only one previous character, as a test counts them.
  static constexpr double best_bigram_loss = 1.7844;
};

}  // namespace lockstep
