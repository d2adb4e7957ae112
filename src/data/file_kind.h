// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "data/bytes.h"

namespace lockstep {

/// Returns whether a file has examples. Its name or address then ends with .jsonl, .ndjson or .json, in any
/// case. Otherwise its first line is a JSON object with a key of examples, and no prose follows. Reads only
/// the beginning. Warns of a text that begins with an object. Throws UserError for examples that are not one
/// object on each line.
bool has_examples(const std::string& name, const Bytes& bytes);

}  // namespace lockstep
