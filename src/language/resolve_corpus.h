// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>

#include "lockstep/data/corpus.h"
#include "lockstep/language/text_options.h"

namespace lockstep {

/// Finds the text of data.dataset: `sample` (built in), `shakespeare`, a path, or an http(s), s3 or file URL.
/// Looks in $LOCKSTEP_DATA_DIR. A download is kept in the cache ($XDG_CACHE_HOME/lockstep or
/// ~/.cache/lockstep), and is downloaded again when the server has another version, except in a run that a
/// supervisor has started again. Only one rank should call this. Throws UserError that says what to do.
Corpus resolve_corpus(const std::variant<NamedText, std::string>& dataset);

}  // namespace lockstep
