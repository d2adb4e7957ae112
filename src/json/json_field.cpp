// SPDX-License-Identifier: Apache-2.0
#include "lockstep/json/json_field.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/json/utf8.h"

namespace lockstep {
namespace {

/// Returns whether an escape \uXXXX whose first digits are at least `first` and less than `end` is at a
/// place.
bool has_escape(std::string_view text, size_t at, std::string_view first, std::string_view end) {
  const size_t before = text.substr(0, at).find_last_not_of('\\') + 1;  // 0 without another character
  const std::string digits = lower_case(std::string(text.substr(at + 2, 2)));
  return text.substr(at, 2) == "\\u" && (at - before) % 2 == 0 && digits >= first && digits < end;
}

/// Returns the surrogate without its other half by which a text that was read so far is damaged, or nothing.
/// A parser gives up after a low surrogate, or when another character or escape follows a high one.
std::string_view surrogate_at_end_of(std::string_view text) {
  constexpr size_t escape_bytes = 6;
  for (const size_t rest : {0, 1, 2, 6}) {
    if (text.size() < escape_bytes + rest) break;
    const size_t at = text.size() - rest - escape_bytes;
    const bool is_lone =
        rest == 0 ? has_escape(text, at, "dc", "e0")
                  : has_escape(text, at, "d8", "dc") && (text[at + escape_bytes] == '\\') == (rest > 1);
    if (is_lone) return text.substr(at, escape_bytes);
  }
  return {};
}

/// Describes the damage in a text that is not JSON. A parser has given up after `byte` bytes.
std::string json_damage(std::string_view text, size_t byte) {
  const size_t last = std::max<size_t>(byte, 1) - 1;  // the byte that the parser has read last
  const std::string place = concat(" at byte ", byte);
  if (last >= text.size()) return "it ends too early";
  for (const char* name : {"NaN", "Infinity"})
    if (text.substr(last).starts_with(name)) return concat(name, place, " is no number of JSON");
  if (const std::string_view escape = surrogate_at_end_of(text.substr(0, last + 1)); !escape.empty())
    return concat("a lone surrogate ", escape, place);
  if (text[last] == '\0') return "a NUL" + place;
  if (static_cast<unsigned char>(text[last]) < ' ') return "a control character" + place;
  size_t begin = last;
  while (begin > 0 && last - begin < 3 && (text[begin] & 0xC0) == 0x80) --begin;
  const bool is_ascii = (text[last] & 0x80) == 0;
  return (is_ascii || first_character(text.substr(begin)).is_valid() ? "damaged" : "not UTF-8") + place;
}

constexpr size_t most_levels = 64;
constexpr size_t most_shown_bytes = 80;

/// Appends a value until the text is long enough to be cut.
template <class Json>
void append_shown(const Json& value, std::string& text) {
  if (value.is_string())
    text += Json(shortened(value.template get_ref<const std::string&>(), most_shown_bytes)).dump();
  if (value.is_primitive() && !value.is_string()) text += value.dump();
  if (value.is_primitive()) return;
  text += value.is_array() ? '[' : '{';
  for (auto member = value.begin(); member != value.end() && text.size() <= most_shown_bytes; ++member) {
    if (member != value.begin()) text += ',';
    if (value.is_object()) text += Json(shortened(member.key(), most_shown_bytes)).dump() + ':';
    append_shown(*member, text);
  }
  text += value.is_array() ? ']' : '}';
}

/// Builds a value from the parser's events. nlohmann's own builder searches an ordered object at each key.
template <class Json>
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

  Json take() { return std::move(whole_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string& /*text*/) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(typename Json::binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*members*/) override { return open(Json::object()); }
  bool start_array(size_t /*elements*/) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(std::string& value) override {
    key_ = std::move(value);
    return true;
  }
  bool end_object() override {
    require_distinct(open_.back()->template get_ref<typename Json::object_t&>());
    return close();
  }
  bool parse_error(size_t byte, const std::string& /*token*/,
                   const nlohmann::detail::exception& problem) override {
    require(dynamic_cast<const nlohmann::detail::out_of_range*>(&problem) == nullptr, origin_,
            " has a number that is too large for double precision");
    throw UserError(concat(origin_, " is not valid JSON: ", json_damage(text_, byte)));
  }

 private:
  using Ordered = nlohmann::ordered_json::object_t;

  /// Puts a value at its place in the innermost open list or object.
  template <class Value>
  bool add(Value&& value) {
    place(std::forward<Value>(value));
    return true;
  }
  template <class Value>
  Json& place(Value&& value) {
    if (open_.empty()) return whole_ = std::forward<Value>(value);
    if (open_.back()->is_array())
      return open_.back()->template get_ref<typename Json::array_t&>().emplace_back(
          std::forward<Value>(value));
    return insert(open_.back()->template get_ref<typename Json::object_t&>(), std::forward<Value>(value));
  }
  template <class Value>
  Json& insert(Ordered& members, Value&& value) {
    return static_cast<typename Ordered::Container&>(members)
        .emplace_back(std::move(key_), std::forward<Value>(value))
        .second;
  }
  template <class Value>
  Json& insert(nlohmann::json::object_t& members, Value&& value) {
    const auto [member, is_new] = members.emplace(key_, std::forward<Value>(value));
    if (!is_new) refuse_second(key_);
    return member->second;
  }

  bool open(Json&& empty) {
    require(open_.size() < most_levels, origin_, " is nested more than ", most_levels, " levels deep");
    open_.push_back(&place(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  void require_distinct(const nlohmann::json::object_t& /*members*/) const {}
  void require_distinct(const Ordered& members) const {
    std::vector<std::string_view> keys;
    for (const auto& [key, value] : members) keys.push_back(key);
    std::ranges::sort(keys);
    const auto second = std::ranges::adjacent_find(keys);
    if (second != keys.end()) refuse_second(*second);
  }
  [[noreturn]] void refuse_second(std::string_view key) const {
    throw UserError(concat(origin_, ": ", shown_json(Json(key)), " appears twice in one object"));
  }

  std::string_view text_;
  const std::string& origin_;
  Json whole_;
  std::vector<Json*> open_;  ///< the open lists and objects, the innermost last
  std::string key_;          ///< the name of the next value
};

}  // namespace

template <class Json>
std::string shown_json(const Json& value) {
  std::string text;
  append_shown(value, text);
  return shortened(text, most_shown_bytes);
}

template <class Json>
Json parse_json(std::string_view text, const std::string& origin, size_t most_bytes) {
  require(text.size() <= most_bytes, origin, " has ", text.size(), " bytes, but at most ", most_bytes,
          " bytes of JSON are read");
  Builder<Json> builder(text, origin);
  Json::sax_parse(text, &builder);
  return builder.take();
}

template std::string shown_json(const nlohmann::json&);
template std::string shown_json(const nlohmann::ordered_json&);
template nlohmann::json parse_json(std::string_view, const std::string&, size_t);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&, size_t);

}  // namespace lockstep
