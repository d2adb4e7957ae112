// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Text to train on: valid UTF-8 and not empty.
struct Corpus {
  std::string text;
  std::string source;       ///< the file, the address or "sample"
  std::string description;  ///< for a person: "Shakespeare, 1,115,394 characters from <path>"
};

/// The path of a file in $LOCKSTEP_DATA_DIR; empty if it is not there.
std::string find_in_data_folder(const std::string& file);

/// UserError if the text is empty or no UTF-8, naming `source`.
Corpus make_corpus(const std::string& title, std::string text, const std::string& source);

/// The bytes of a file. UserError naming it.
std::string read_corpus_file(const std::string& path);

/// What data.dataset names that needs no network: `sample` (built in) or a text file, at its path or in
/// $LOCKSTEP_DATA_DIR. Throws UserError that says what to do.
Corpus local_corpus(const std::string& name);

}  // namespace lockstep
