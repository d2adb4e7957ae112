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

/// Finds what data.dataset names: `sample` (built in), `shakespeare`, a path, or an http(s), s3 or file URL.
/// Looks in $LOCKSTEP_DATA_DIR, then in a cache ($XDG_CACHE_HOME/lockstep or ~/.cache/lockstep), then
/// downloads into it. Only one rank should call this and hand the text to the others. Throws UserError that
/// says what to do.
Corpus resolve_corpus(const std::string& name);

}  // namespace lockstep
