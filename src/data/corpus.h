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
  std::string description;        ///< for people: "Shakespeare, 1,115,394 characters from <path>"
  std::vector<size_t> ends = {};  ///< end of each document in bytes if there are several
};

/// Returns the path of a file in $LOCKSTEP_DATA_DIR, or an empty string if it is not there.
std::string find_in_data_folder(const std::string& file);

/// Returns a corpus with this text. Throws UserError that names `source` if the text is empty or not UTF-8.
Corpus make_corpus(const std::string& title, std::string text, const std::string& source);
/// Returns the corpus of a file called `name`: its text or a JSONL file's examples. The code that reads the
/// examples checks them.
Corpus corpus_of_file(const std::string& name, const std::string& title, std::string text,
                      const std::string& source);

/// Returns the bytes of a file. Throws UserError that names a file that cannot be read.
std::string read_corpus_file(const std::string& path);

/// Returns the corpus that data.dataset names if it needs no network. This is `sample` (built in), a text
/// file or a folder. A file is found at its path or in $LOCKSTEP_DATA_DIR. The *.txt files of a folder are
/// its documents in order of their names. Throws UserError that explains what to do.
Corpus local_corpus(const std::string& name);

/// The built-in corpus (data.dataset = sample): lines like "- Mia met old fox; old fox: Mia". Name, verb,
/// adjective and noun are each drawn from 16 words by Philox on the line's number. The rest of the line
/// follows from them. This includes the echoes 9 and 26 characters later. So a line of 32 characters contains
/// 16 bits.
class SampleCorpus {
 public:
  static constexpr int64_t line_characters = 32;
  static constexpr int64_t default_lines = 32000;

  /// Returns the same text every time.
  static std::string text(int64_t lines = default_lines);

  /// Nats per character of the process. It is also the lowest possible mean loss in windows that begin with a
  /// line and are a multiple of 32 characters long. There "-" shows where a line begins.
  static constexpr double entropy_per_character = std::numbers::ln2 / 2;
  /// Nats per character of the best model that sees only the previous character. A test computes it.
  static constexpr double best_bigram_loss = 1.7844;
};

}  // namespace lockstep
