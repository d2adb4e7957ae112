// SPDX-License-Identifier: Apache-2.0
#include "doctor/finding.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep {
namespace {

constexpr std::array names = {"ok", "warning", "problem"};

const char* name_of(Verdict verdict) { return names[static_cast<size_t>(verdict)]; }

Verdict verdict_named(const std::string& name) {
  const auto at = std::find(names.begin(), names.end(), name);
  expect(at != names.end(), "'", name, "' is no verdict");
  return static_cast<Verdict>(at - names.begin());
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

int64_t count(const std::vector<Finding>& findings, Verdict verdict) {
  return std::count_if(findings.begin(), findings.end(),
                       [&](const Finding& finding) { return finding.verdict == verdict; });
}

}  // namespace

std::string to_text(const std::vector<Finding>& findings) {
  size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.name.size());
  std::string text;
  for (const Finding& finding : findings) {
    const std::string verdict = padded(name_of(finding.verdict), 9);
    text += concat(verdict, padded(finding.name, width), "  ", finding.found, "\n");
    if (!finding.advice.empty()) text += concat(std::string(9 + width, ' '), "  -> ", finding.advice, "\n");
  }
  return text;
}

std::string to_json(const std::vector<Finding>& findings) {
  auto list = nlohmann::json::array();
  for (const Finding& finding : findings)
    list.push_back({{"name", finding.name},
                    {"verdict", name_of(finding.verdict)},
                    {"found", finding.found},
                    {"advice", finding.advice}});
  const nlohmann::json report = {{"findings", list},
                                 {"problems", count(findings, Verdict::problem)},
                                 {"warnings", count(findings, Verdict::warning)}};
  // What a check quotes (a program's output, say) need not be UTF-8.
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<Finding> findings_from_json(const std::string& text) {
  std::vector<Finding> findings;
  const auto report = nlohmann::json::parse(text);
  for (const auto& entry : report.at("findings"))
    findings.push_back({.name = entry.at("name"),
                        .verdict = verdict_named(entry.at("verdict")),
                        .found = entry.at("found"),
                        .advice = entry.at("advice")});
  return findings;
}

}  // namespace lockstep
