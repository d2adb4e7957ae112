// SPDX-License-Identifier: Apache-2.0
#include "lockstep/json/json_field.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/json/json_members.h"
#include "tests/support/user_error.h"

namespace lockstep {

// The conversions look for json_members() in the namespace of the struct.
struct Part {
  int32_t number = 0;
  bool is_last = false;
};
struct Whole {
  std::string name;
  std::vector<Part> parts;
  std::map<std::string, double> sizes;
};
constexpr auto json_members(const Part* /*any*/) {
  return std::tuple{JsonMember{"number", &Part::number}, JsonMember{"last", &Part::is_last}};
}
constexpr auto json_members(const Whole* /*any*/) {
  return std::tuple{JsonMember{"name", &Whole::name}, JsonMember{"parts", &Whole::parts},
                    JsonMember{"sizes", &Whole::sizes}};
}

namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

std::string message_for(const std::string& text, size_t most_bytes = 1000) {
  const std::string message = user_error([&] { parse_json<Json>(text, "file", most_bytes); });
  EXPECT_EQ(user_error([&] { parse_json<Ordered>(text, "file", most_bytes); }), message) << text;
  return message;
}

TEST(ParseJson, ReadsWhatNlohmannReads) {
  for (const std::string text :
       {"null", "true", "-3", "18446744073709551615", "1.5e-300", R"("\u00e9\n")", "[]", "{}",
        " [1, [2], {}] ", R"({"b": 1, "a": {"a": [null, false], "b": ""}, "": -0.0})"}) {
    EXPECT_EQ(parse_json<Json>(text, "file", 1000).dump(), Json::parse(text).dump());
    EXPECT_EQ(parse_json<Ordered>(text, "file", 1000).dump(), Ordered::parse(text).dump());
  }
}

TEST(ParseJson, ErrorsNameTheFileAndTheReason) {
  EXPECT_EQ(message_for("{\"a\":[1,}"), "file is not valid JSON: damaged at byte 9");
  EXPECT_EQ(message_for(""), "file is not valid JSON: it ends too early");
  EXPECT_EQ(message_for("1 2"), "file is not valid JSON: damaged at byte 3");
  EXPECT_EQ(message_for("[1e999]"), "file has a number that is too large for double precision");
  EXPECT_EQ(message_for(R"({"a": {"b": 1, "c": 2, "b": 3}})"), "file: \"b\" appears twice in one object");
  EXPECT_EQ(message_for("[1, 2, 3]", 8), "file has 9 bytes, but at most 8 bytes of JSON are read");
}

TEST(ParseJson, ReadsSixtyFourLevels) {
  const auto nested = [](size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  EXPECT_NO_THROW(parse_json<Json>(nested(64), "file", 1000));
  EXPECT_EQ(message_for(nested(65)), "file is nested more than 64 levels deep");
  EXPECT_EQ(message_for(std::string(1'000'000, '['), 2'000'000), "file is nested more than 64 levels deep");
}

// nlohmann's parser of ordered objects takes an hour for these keys. An earlier check of doubled keys cleared
// a large table for each small object.
TEST(ParseJson, ManyKeysTakeNoLongerThanTheirBytes) {
  std::string text = "[{";
  for (int key = 0; key < 400'000; ++key) text += concat(key == 0 ? "" : ",", "\"", key, "\":0");
  text += "}";
  for (int object = 0; object < 400'000; ++object) text += ",{\"a\":0}";
  text += "]";
  EXPECT_EQ(parse_json<Ordered>(text, "file", text.size()).size(), 400'001U);
  EXPECT_EQ(parse_json<Json>(text, "file", text.size())[0].size(), 400'000U);
}

TEST(JsonField, ErrorsNameTheFieldAndTheWrongValue) {
  const JsonField<Json> file(R"({"a": {"b": [1, 2.0, "x"]}, "n": null})", "file", 1000);
  const auto field = file["a"]["b"];
  EXPECT_EQ(field.elements()[0].whole(), 1);
  EXPECT_EQ(
      user_error([&] { field.elements()[1].whole(); }),
      "file: a.b[1] is 2.0: it must be a whole number from -9223372036854775808 to 9223372036854775807");
  EXPECT_EQ(user_error([&] { field.elements()[2].number(); }), "file: a.b[2] is \"x\": it must be a number");
  EXPECT_EQ(user_error([&] { file["c"].text(); }), "file: c is missing: it must be a text");
  EXPECT_EQ(user_error([&] { file["n"].members(); }), "file: n is missing: it must be an object");
  EXPECT_EQ(user_error([&] { file["a"].text(); }), R"(file: a is {"b":[1,2.0,"x"]}: it must be a text)");
}

TEST(JsonField, AShownValueIsCut) {
  const Json value = {{"long", std::string(1'000'000, 'x')}, {"more", std::vector<int>(1'000'000)}};
  EXPECT_EQ(shown_json(value), "{\"long\":\"" + std::string(71, 'x') + "...");
  EXPECT_EQ(shown_json(value["more"]).size(), 83U);
  std::string umlauts;
  for (int i = 0; i < 60; ++i) umlauts += "\xC3\xA9";
  EXPECT_EQ(shown_json(Json("x" + umlauts)), "\"x" + umlauts.substr(0, 78) + "...");
}

TEST(JsonMembers, AreWrittenAndReadBack) {
  const Whole whole{
      .name = "w", .parts = {{.number = 3}, {.number = -4, .is_last = true}}, .sizes = {{"a", 0.5}}};
  const std::string text = Json(whole).dump();
  Whole again;
  read_value(JsonField<Json>(text, "file", 1000), again);
  EXPECT_EQ(Json(again).dump(), text);
}

TEST(JsonMembers, OfAnotherKindAreRefused) {
  const auto problem_of = [](const std::string& part) {
    return user_error([&] {
      Part read;
      read_value(JsonField<Json>(part, "file", 1000), read);
    });
  };
  EXPECT_EQ(problem_of(R"({"number": 1, "last": true})"), "(nothing was thrown)");
  for (const std::string number : {"1.0", "1e30", "2147483648", "\"1\"", "null", "true"})
    EXPECT_NE(problem_of(R"({"last": true, "number": )" + number + "}").find("file: number"),
              std::string::npos)
        << number;
  EXPECT_NE(problem_of(R"({"number": 1})").find("file: last is missing"), std::string::npos);
  EXPECT_NE(problem_of("[1]").find("it must be an object"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
