// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "data/corpus.h"

namespace lockstep {

/// Finds what data.dataset names: `sample` (built in), `shakespeare`, a path, or an http(s), s3 or file URL.
/// Looks in $LOCKSTEP_DATA_DIR, then in a cache ($XDG_CACHE_HOME/lockstep or ~/.cache/lockstep), then
/// downloads into it. Only one rank should call this and hand the text to the others. Throws UserError that
/// says what to do.
Corpus resolve_corpus(const std::string& name);

}  // namespace lockstep
