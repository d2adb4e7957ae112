// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {

/// Parses JSON that another program or a person wrote. `Json` is nlohmann::json or ordered_json. Throws
/// UserError if the text is not JSON, or has more than `most_bytes` bytes or 64 levels. A key that appears
/// twice in one object and a number beyond double precision are errors too. The time is O(n log n) for any
/// text. The error begins with `origin`: "prompts.jsonl, line 3".
template <class Json>
Json parse_json(std::string_view text, const std::string& origin, size_t most_bytes);

/// Returns the value as errors show it: JSON, cut after 80 bytes.
template <class Json>
std::string shown_json(const Json& value);

/// A value of such a JSON text and its name in errors: "vocab.json: model.merges[3]". The name of the whole
/// text is its origin. A function that needs another kind of value throws UserError with name and value. A
/// number with a point or an exponent is no whole number, whatever its value.
template <class Json>
class JsonField {
 public:
  JsonField(std::string_view text, const std::string& origin, size_t most_bytes)
      : value_(std::make_shared<const Json>(parse_json<Json>(text, origin, most_bytes))),
        name_(origin),
        separator_(": ") {}

  const Json& json() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  bool has(const std::string& key) const { return value_->is_object() && value_->contains(key); }
  const std::string& name() const { return name_; }
  std::string shown() const { return shown_json(*value_); }

  /// Throws UserError that begins with the name.
  template <class... Args>
  [[noreturn]] void refuse(const Args&... message) const {
    throw UserError(concat(name_, " ", message...));
  }
  template <class... Kind>
  void require_is(bool is_right, const Kind&... kind) const {
    if (!is_right) refuse(is_null() ? "is missing" : "is " + shown(), ": it must be ", kind...);
  }

  /// Returns the member `key`, or null if the object has none.
  JsonField operator[](const std::string& key) const {
    static const Json none;
    require_is(value_->is_object(), "an object");
    const auto found = value_->find(key);
    return {*this, found == value_->end() ? none : *found, concat(name_, separator_, shortened(key))};
  }
  std::vector<JsonField> elements() const {
    require_is(value_->is_array(), "a list");
    std::vector<JsonField> all;
    for (const Json& element : *value_) all.push_back({*this, element, concat(name_, "[", all.size(), "]")});
    return all;
  }
  /// Returns the keys and values of an object.
  std::vector<std::pair<std::string, JsonField>> members() const {
    require_is(value_->is_object(), "an object");
    std::vector<std::pair<std::string, JsonField>> all;
    for (const auto& [key, value] : value_->items())
      all.push_back({key, {*this, value, concat(name_, separator_, shortened(key))}});
    return all;
  }

  std::string text() const {
    require_is(value_->is_string(), "a text");
    return value_->template get<std::string>();
  }
  bool flag(bool otherwise = false) const {
    if (is_null()) return otherwise;
    require_is(value_->is_boolean(), "true or false");
    return value_->template get<bool>();
  }
  double number() const {
    require_is(value_->is_number(), "a number");
    return value_->template get<double>();
  }
  template <class Whole = int64_t>
  Whole whole(Whole least = std::numeric_limits<Whole>::min(),
              Whole most = std::numeric_limits<Whole>::max()) const {
    const auto fits = [&](auto number) {
      return std::cmp_less_equal(least, number) && std::cmp_less_equal(number, most);
    };
    require_is(value_->is_number_unsigned()
                   ? fits(value_->template get<uint64_t>())
                   : value_->is_number_integer() && fits(value_->template get<int64_t>()),
               "a whole number from ", least, " to ", most);
    return value_->template get<Whole>();
  }

 private:
  JsonField(const JsonField& whole, const Json& value, std::string name)
      : value_(whole.value_, &value), name_(std::move(name)) {}

  std::shared_ptr<const Json> value_;  ///< keeps the whole text
  std::string name_;
  const char* separator_ = ".";  ///< between its name and a member's
};

/// Returns the JSON of a value; null if there is none.
template <class Json, class Value>
Json json_or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace lockstep
