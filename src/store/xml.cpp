// SPDX-License-Identifier: Apache-2.0
#include "store/xml.h"

#include <array>
#include <charconv>
#include <utility>

#include "core/error.h"

namespace lockstep {
namespace {

constexpr int deepest_nesting = 32;
constexpr std::array<std::pair<std::string_view, char>, 5> entities = {
    {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}}};

void append_utf8(std::string& text, uint32_t code) {
  const auto low_bits = [&](int shift) { return static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += {static_cast<char>(0xc0 | (code >> 6)), low_bits(0)};
  } else if (code < 0x10000) {
    text += {static_cast<char>(0xe0 | (code >> 12)), low_bits(6), low_bits(0)};
  } else {
    text += {static_cast<char>(0xf0 | (code >> 18)), low_bits(12), low_bits(6), low_bits(0)};
  }
}

class XmlReader {
 public:
  explicit XmlReader(std::string_view document) : rest_(document) {}

  XmlElement document() {
    take("\xef\xbb\xbf");
    // S3 sends spaces to keep a connection alive until it knows its answer.
    skip_space();
    if (take("<?xml")) rest_.remove_prefix(position_of("?>") + 2);
    skip_space();
    XmlElement root = element(1);
    skip_space();
    expect(rest_.empty(), "the XML goes on after its end");
    return root;
  }

 private:
  bool take(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void need(std::string_view token) { expect(take(token), "the XML has no ", token, " where one has to be"); }
  size_t position_of(std::string_view token) const {
    const size_t position = rest_.find(token);
    expect(position != std::string_view::npos, "the XML is cut off: there is no ", token);
    return position;
  }
  std::string_view take_until(size_t position) {
    const std::string_view taken = rest_.substr(0, position);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  void skip_space() { take_until(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size())); }

  std::string name() {
    constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:";
    const std::string taken(take_until(std::min(rest_.find_first_not_of(letters), rest_.size())));
    expect(!taken.empty(), "the XML has no name where one has to be");
    return taken;
  }

  void skip_attributes() {
    for (skip_space(); !rest_.starts_with('>') && !rest_.starts_with("/>"); skip_space()) {
      name();
      need("=");
      const std::string_view quote = rest_.starts_with('\'') ? "'" : "\"";
      need(quote);
      rest_.remove_prefix(position_of(quote) + 1);
    }
  }

  void resolve_entity(std::string& text) {
    need("&");
    const std::string_view entity = take_until(position_of(";"));
    need(";");
    for (const auto& [word, character] : entities) {
      if (entity != word) continue;
      text += character;
      return;
    }
    const bool is_hexadecimal = entity.starts_with("#x");
    expect(entity.starts_with('#'), "the XML has an unknown entity ", entity);
    const std::string_view digits = entity.substr(is_hexadecimal ? 2 : 1);
    uint32_t code = 0;
    const auto [end, problem] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, is_hexadecimal ? 16 : 10);
    expect(problem == std::errc() && end == digits.data() + digits.size() && code > 0 && code < 0x110000,
           "the XML has no character ", entity);
    append_utf8(text, code);
  }

  XmlElement element(int depth) {
    expect(depth <= deepest_nesting, "the XML nests too deeply");
    need("<");
    XmlElement parsed{.name = name(), .text = "", .children = {}};
    skip_attributes();
    if (take("/>")) return parsed;
    need(">");
    while (!take("</")) {
      expect(!rest_.empty(), "the XML is cut off in ", parsed.name);
      if (rest_.starts_with('<'))
        parsed.children.push_back(element(depth + 1));
      else if (rest_.starts_with('&'))
        resolve_entity(parsed.text);
      else
        parsed.text += take_until(std::min(rest_.find_first_of("<&"), rest_.size()));
    }
    expect(name() == parsed.name, "the XML ends another element than ", parsed.name);
    skip_space();
    need(">");
    return parsed;
  }

  std::string_view rest_;
};

}  // namespace

std::string XmlElement::text_of(std::string_view child) const {
  for (const XmlElement& element : children)
    if (element.name == child) return element.text;
  return "";
}

XmlElement parse_xml(std::string_view document) { return XmlReader(document).document(); }

std::string escape_xml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    std::string_view word;
    for (const auto& [entity, character] : entities)
      if (c == character) word = entity;
    escaped += word.empty() ? std::string(1, c) : concat("&", word, ";");
  }
  return escaped;
}

}  // namespace lockstep
