// SPDX-License-Identifier: Apache-2.0
// Tests that an installation shows no internal names: lockstep.h names each header that it leads to, and a
// name without a definition there is in lockstep::detail.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "architecture/source_rules.h"

namespace lockstep::architecture {
namespace {

using Headers = std::map<std::string, SourceFile>;  ///< by the name in an include, such as "core/file.h"

/// Returns the headers that one includes.
std::vector<std::string> includes_of(const SourceFile& header) {
  static const std::regex include("#include \"(lockstep/)?([^\"]+)\".*");
  std::vector<std::string> names;
  std::smatch match;
  for (const std::string& line : header.lines)
    if (std::regex_match(line, match, include)) names.push_back(match[2]);
  return names;
}

/// Returns lockstep.h and all headers that it leads to.
Headers headers_below(const std::filesystem::path& root, const std::string& folder) {
  Headers found;
  std::vector<std::string> queue{"lockstep.h"};
  while (!queue.empty()) {
    const std::string name = queue.back();
    queue.pop_back();
    const auto [header, is_new] = found.try_emplace(name, read_file(root, folder + "/" + name));
    if (!is_new) continue;
    for (const std::string& next : includes_of(header->second)) queue.push_back(next);
  }
  return found;
}

/// Returns the lines of a header that are not in a namespace detail. clang-format names the end of a
/// namespace unless it has a single line.
std::vector<std::string> lines_for_users(const SourceFile& header) {
  std::vector<std::string> lines;
  bool is_internal = false;
  for (size_t i = 0; i < header.lines.size(); ++i) {
    const std::string& line = header.lines[i];
    const bool has_one_line = i + 2 < header.lines.size() && header.lines[i + 2] == "}";
    if (line == "namespace detail {" && has_one_line)
      i += 2;
    else if (line == "namespace detail {" || line == "namespace lockstep::detail {")
      is_internal = true;
    else if (line.starts_with("}  // namespace"))
      is_internal = false;
    else if (!is_internal)
      lines.push_back(line);
  }
  return lines;
}

/// Returns the types that a header defines for users, or those that it only declares.
std::set<std::string> types_in(const SourceFile& header, bool defined) {
  static const std::regex declaration("(template <.*> )?(class|struct|enum class|enum) (\\w+)\\b(.*)");
  std::set<std::string> names;
  std::smatch match;
  for (const std::string& line : lines_for_users(header)) {
    if (!std::regex_match(line, match, declaration)) continue;
    const std::string rest = match[4];
    const bool is_declared = rest.ends_with(";") && rest.find('{') == std::string::npos;
    if (is_declared != defined) names.insert(match[3]);
  }
  return names;
}

/// Returns whether a header has anything outside of lockstep::detail but includes and comments.
bool has_names_for_users(const SourceFile& header) {
  for (const std::string& line : lines_for_users(header))
    if (!line.empty() && !line.starts_with("//") && !line.starts_with("#include") && line != "#pragma once")
      return true;
  return false;
}

std::vector<Violation> check_public(const Headers& headers) {
  std::vector<Violation> violations;
  const std::vector<std::string> listed = includes_of(headers.at("lockstep.h"));
  std::set<std::string> defined;
  for (const auto& [name, header] : headers) defined.merge(types_in(header, true));
  for (const auto& [name, header] : headers) {
    const bool is_listed = name == "lockstep.h" || std::ranges::count(listed, name) > 0;
    if (!is_listed && has_names_for_users(header))
      violations.push_back({name, 0, "it is installed: name it in lockstep.h, or use lockstep::detail"});
    for (const std::string& line : lines_for_users(header))
      if (line.starts_with("using detail::") || line.starts_with("using namespace"))
        violations.push_back({name, 0, "it shows internal names to users: " + line});
    for (const std::string& declared : types_in(header, false))
      if (!defined.contains(declared))
        violations.push_back(
            {name, 0, declared + " is not defined in an installed header: put it into detail"});
  }
  return violations;
}

TEST(PublicHeaders, AreNamedInLockstepOrInDetail) {
  const Headers headers = headers_below(LOCKSTEP_SOURCE_DIR, "src");
  EXPECT_GT(headers.size(), 50U);
  for (const Violation& violation : check_public(headers)) ADD_FAILURE() << violation;
}

Headers example(const std::vector<std::string>& listed, const std::vector<std::string>& other) {
  return {{"lockstep.h", {"lockstep.h", {"#include \"lockstep/a.h\""}}},
          {"a.h", {"a.h", listed}},
          {"b.h", {"b.h", other}}};
}

TEST(PublicHeaders, AnInternalNameIsFound) {
  const std::vector<std::string> include{"#include \"lockstep/b.h\""};
  const std::vector<std::string> internal{"namespace lockstep::detail {", "struct B {", "};",
                                          "}  // namespace"};
  EXPECT_TRUE(check_public(example(include, internal)).empty());
  EXPECT_FALSE(check_public(example(include, {"namespace lockstep {", "struct B {"})).empty());
  EXPECT_FALSE(check_public(example(include, {"namespace lockstep::math {", "int f();"})).empty());
  EXPECT_FALSE(check_public(example(include, {"#define B"})).empty());

  const auto finds = [&](const std::vector<std::string>& lines) {
    return !check_public(example(lines, internal)).empty();
  };
  EXPECT_TRUE(finds({"namespace lockstep {", "class Hidden;"}));
  EXPECT_TRUE(finds({"namespace lockstep {", "struct B;"})) << "it is another one than that in detail";
  EXPECT_TRUE(finds({"namespace lockstep {", "template <class T> class Hidden;"}));
  EXPECT_TRUE(finds({"namespace lockstep {", "enum class Hidden : int;"}));
  EXPECT_TRUE(finds({"namespace lockstep {", "using detail::B;"}));
  EXPECT_FALSE(finds({"namespace detail {", "class Hidden;", "}"}));
  EXPECT_FALSE(finds({"class Later;", "class Later final : public Base {"}));
  EXPECT_FALSE(finds({"struct Empty {};", "enum class Two : int { a, b };"}));
}

}  // namespace
}  // namespace lockstep::architecture
