// SPDX-License-Identifier: Apache-2.0
// The reader of all JSON. It accepts what nlohmann's parser accepts, unless a key is doubled or it is too
// deep.
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "lockstep/json/json_field.h"

using namespace lockstep;
using nlohmann::json, nlohmann::ordered_json;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string_view text = fuzz::text_of(data, bytes);
  json sorted;
  ordered_json ordered;
  const bool is_read = fuzz::accepts([&] { sorted = parse_json<json>(text, "input", 4096); });
  fuzz::check(is_read == fuzz::accepts([&] { ordered = parse_json<ordered_json>(text, "input", 4096); }),
              "the two kinds of objects differ");
  fuzz::check(is_read <= (bytes <= 4096), "a text that is too long was read");
  if (!is_read) return 0;
  fuzz::check(sorted.dump() == json::parse(text).dump(), "another value than nlohmann's");
  fuzz::check(ordered.dump() == ordered_json::parse(text).dump(), "another order than nlohmann's");
  fuzz::check(shown_json(sorted).size() <= 83, "a shown value is not cut");
  return 0;
}
