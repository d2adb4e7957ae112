// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/bytes.h"
#include "lockstep/data/chat_template.h"
#include "lockstep/data/example_rows.h"

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
  Columns columns = {};                   ///< of examples
  std::optional<ChatTemplate> chat = {};  ///< of examples that are conversations
  std::shared_ptr<const void> keep = {};  ///< keeps a file without a name
};

/// Returns whether a file has examples. Its name or address then ends with .jsonl, .ndjson or .json, in any
/// case. Otherwise its first line is a JSON object with a key of examples, and no prose follows. Reads only
/// the beginning. Warns of a text that begins with an object. Throws UserError for examples that are not one
/// object on each line.
bool has_examples(const std::string& name, const Bytes& bytes);

/// Returns the corpus of the file at `path`, which may be a pipe. has_examples() finds its kind by `name` and
/// contents.
Corpus corpus_of_file(const std::string& name, const std::string& title, const std::string& path,
                      const std::string& source);

/// Returns the built-in corpus.
Corpus sample_corpus();

/// Returns the corpus of a text file, a pipe or a folder. A file is found at its path or in
/// $LOCKSTEP_DATA_DIR. The *.txt files of a folder are its documents in order of their names. Throws
/// UserError that explains what to do.
Corpus local_corpus(const std::string& name);

/// Returns lines of the built-in corpus, the same every time: "- Mia met old fox; old
/// fox: Mia". Name, verb, adjective and noun are each drawn from 16 words by Philox on the line's number. The
/// rest of the line follows from them. This includes the echoes 9 and 26 characters later. So a line of 32
/// characters contains 16 bits.
std::string sample_text(int64_t lines = 32000);

}  // namespace lockstep
