// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Parses JSON that another program or a person wrote. Throws UserError that begins with `place`, such as
/// "prompts.jsonl, line 3", if it is no JSON, is nested more than 64 levels deep, names a key twice in one
/// object or has a number that double precision cannot hold. `Json` is nlohmann::json or ordered_json.
template <class Json>
Json parse_json(std::string_view text, const std::string& place);

}  // namespace lockstep
