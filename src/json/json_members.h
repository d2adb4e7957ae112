// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "lockstep/json/json_field.h"

namespace lockstep {

/// A member of a struct, and its key in the struct's JSON object. A struct with a function
/// json_members(const Struct*), which returns a std::tuple of these, can be read and written.
template <class Struct, class Value>
struct JsonMember {
  const char* key;
  Value Struct::*member;
};
template <class Struct, class Value>
JsonMember(const char*, Value Struct::*) -> JsonMember<Struct, Value>;

template <class Struct>
concept HasJsonMembers = requires(const Struct* any) {
  json_members(any);
};

/// Writes all members, as nlohmann's conversions do. nlohmann calls this function.
template <class Json, HasJsonMembers Struct>
void to_json(Json& json, const Struct& value) {
  json = Json::object();
  std::apply([&](const auto&... one) { ((json[one.key] = value.*one.member), ...); }, json_members(&value));
}

// These functions read a value that another process wrote. nlohmann's own conversions accept any number for
// an integer. They throw UserError with the name of a field that is missing or of another kind.
template <class Json>
void read_value(const JsonField<Json>& field, std::string& value) {
  value = field.text();
}
template <class Json>
void read_value(const JsonField<Json>& field, bool& value) {
  field.require_is(!field.is_null(), "true or false");
  value = field.flag();
}
template <class Json, std::integral Number>
void read_value(const JsonField<Json>& field, Number& value) {
  value = field.template whole<Number>();
}
template <class Json, std::floating_point Number>
void read_value(const JsonField<Json>& field, Number& value) {
  value = field.number();
}
/// Reads the number of a value. The enumeration's last name is `count`.
template <class Json, class Enum>
requires std::is_enum_v<Enum>
void read_value(const JsonField<Json>& field, Enum& value) {
  value = static_cast<Enum>(field.template whole<int>(0, static_cast<int>(Enum::count) - 1));
}
template <class Json, HasJsonMembers Struct>
void read_value(const JsonField<Json>& field, Struct& value) {
  std::apply([&](const auto&... one) { (read_value(field[one.key], value.*one.member), ...); },
             json_members(&value));
}
template <class Json, class Value>
void read_value(const JsonField<Json>& field, std::vector<Value>& values) {
  values.clear();
  for (const JsonField<Json>& element : field.elements()) read_value(element, values.emplace_back());
}
template <class Json, class Value>
void read_value(const JsonField<Json>& field, std::map<std::string, Value>& values) {
  values.clear();
  for (const auto& [key, member] : field.members()) read_value(member, values[key]);
}

}  // namespace lockstep
