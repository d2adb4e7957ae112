// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regex>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

/// Returns why a text is not well-formed XML, in the subset that reports use; empty if it is.
inline std::string problem_of_xml(std::string text) {
  // std::regex needs a stack as deep as its match is long, so long parts are removed by hand.
  for (const auto& [open, close] :
       {std::pair<std::string, std::string>{"<![CDATA[", "]]>"}, {"<!DOCTYPE", ">"}})
    for (size_t begin = text.find(open); begin != std::string::npos; begin = text.find(open)) {
      const size_t end = text.find(close, begin);
      if (end == std::string::npos) return open + " has no end";
      text.erase(begin, end + close.size() - begin);
    }
  static const std::regex name("/?[a-z][a-z0-9]*"), entity("&(amp|lt|gt|quot|#[0-9]+);");
  static const std::regex attribute("^\\s+[a-zA-Z][a-zA-Z0-9-]*=$");
  std::vector<std::string> open;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '&') {
      const std::string here = text.substr(at, 8);
      if (!std::regex_search(here, entity, std::regex_constants::match_continuous))
        return "an entity: " + here;
    }
    if (text[at] != '<') continue;
    const size_t end = text.find('>', at);
    if (end == std::string::npos) return "a tag without an end";
    std::string tag = text.substr(at + 1, end - at - 1);
    at = end;
    const bool is_whole = tag.ends_with('/');
    if (is_whole) tag.pop_back();
    const std::string word = tag.substr(0, tag.find_first_of(" \n"));
    if (!std::regex_match(word, name)) return "a tag: " + tag.substr(0, 40);
    std::string rest = tag.substr(word.size());
    while (!rest.empty()) {
      const size_t first = rest.find('"'), last = rest.find('"', first + 1);
      if (first == std::string::npos || last == std::string::npos)
        return "an attribute in: " + tag.substr(0, 40);
      if (!std::regex_match(rest.substr(0, first), attribute)) return "an attribute in: " + tag.substr(0, 40);
      if (rest.substr(first, last - first).find('<') != std::string::npos)
        return "a value in: " + tag.substr(0, 40);
      rest.erase(0, last + 1);
    }
    if (word.starts_with('/')) {
      if (open.empty() || "/" + open.back() != word) return "an end without a begin: " + word;
      open.pop_back();
    } else if (!is_whole) {
      open.push_back(word);
    }
  }
  return open.empty() ? "" : "no end of " + open.back();
}

}  // namespace lockstep
