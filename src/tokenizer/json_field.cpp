// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/json_field.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

namespace lockstep {

template <class Json>
Json parse_json(std::string_view text, const std::string& origin) {
  constexpr size_t deepest = 64;
  std::vector<std::unordered_set<std::string>> keys(deepest + 1);
  const auto watch = [&](int depth, typename Json::parse_event_t event, const Json& parsed) {
    const auto level = static_cast<size_t>(depth);
    require(level < deepest, origin, " is nested more than ", deepest, " levels deep");
    if (event == Json::parse_event_t::object_start) keys[level + 1].clear();
    if (event == Json::parse_event_t::key)
      require(keys[level].insert(parsed.template get<std::string>()).second, origin, ": ", parsed.dump(),
              " appears twice in one object");
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const typename Json::parse_error& problem) {
    throw UserError(concat(origin, " is not valid JSON: damaged at byte ", problem.byte));
  } catch (const typename Json::out_of_range&) {
    throw UserError(concat(origin, " has a number that is too large for double precision"));
  }
}

template nlohmann::json parse_json(std::string_view, const std::string&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&);

}  // namespace lockstep
