// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fuzz/fuzz.h"
#include "lockstep/tokenizer/load_tokenizer.h"
#include "lockstep/tokenizer/write_tokenizer_json.h"
#include "lockstep/unicode/normalization.h"

namespace lockstep::fuzz {

/// Encodes a text, decodes it, and compares with the same tokenizer written to and read from a
/// tokenizer.json.
inline void check_tokenizer(const Tokenizer& tokenizer, const std::string& text) {
  const auto is_id = [&](int32_t id) { return id >= 0 && id < tokenizer.vocabulary_size(); };
  for (const int32_t id : tokenizer.beginning()) check(is_id(id), "a text begins with ", id);
  std::vector<int32_t> ids;
  if (!accepts([&] { ids = tokenizer.encode(text); })) return;
  for (const int32_t id : ids) check(is_id(id), "id ", id, " of ", tokenizer.vocabulary_size());
  // A tokenizer may normalize a text.
  check(normalized(tokenizer.decode(ids)).ends_with(normalized(text)), "a text of ", text.size(),
        " bytes is decoded as another");
  for (size_t near = 0; near <= text.size(); near += 3) {
    const size_t cut = tokenizer.safe_cut(text, near);
    check(cut >= near && cut <= text.size(), "a cut at ", cut, " near ", near);
  }
  const auto again = tokenizer_from_json(tokenizer.to_json(), "again", tokenizer_config_json(tokenizer));
  check(again->encode(text) == ids, "a tokenizer that was written gives other ids");
}

}  // namespace lockstep::fuzz
