// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "data/bytes.h"

namespace lockstep {

/// A text and its name in errors. It is read from the file at `path`, or it is in memory if that is empty.
struct Document {
  std::string name;
  std::string path;
  std::string text = {};

  Bytes bytes() const { return path.empty() ? Bytes(text) : Bytes::of_file(path); }
};

/// A text to train on that has been found and not been read.
struct Corpus {
  enum class Kind {
    text,       ///< one document
    documents,  ///< documents that the end-of-text token follows
    examples    ///< one document of JSON lines
  };

  Kind kind = Kind::text;
  std::string title;   ///< "Shakespeare"
  std::string source;  ///< the file, the folder, the address or "the built-in sample"
  std::vector<Document> documents;
  std::shared_ptr<const void> keep = {};  ///< keeps a file without a name
};

/// Returns the path of a file in $LOCKSTEP_DATA_DIR, or an empty string if it is not there.
std::string find_in_data_folder(const std::string& file);

/// Returns the corpus of the file at `path`. `name` tells whether it has text or, as *.jsonl, examples.
Corpus corpus_of_file(const std::string& name, const std::string& title, const std::string& path,
                      const std::string& source);

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
