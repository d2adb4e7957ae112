// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/parameter_rules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

/// Splits a list at its commas: "a, b" -> "a", "b".
std::vector<std::string> entries_of(const std::string& key, const std::string& list) {
  std::vector<std::string> entries;
  std::istringstream text(list);
  for (std::string entry; std::getline(text, entry, ',');) entries.push_back(trimmed(entry));
  require(std::ranges::none_of(entries, &std::string::empty) && !list.ends_with(','), key, " = ", list,
          ": an entry next to a comma is empty");
  return entries;
}

/// Returns the trainable parameters whose names match the pattern.
std::vector<NamedTensor> matching(const std::vector<NamedTensor>& parameters, const std::string& pattern) {
  std::vector<NamedTensor> found;
  for (const NamedTensor& parameter : parameters)
    if (parameter.tensor.requires_grad() && matches_pattern(pattern, parameter.name))
      found.push_back(parameter);
  return found;
}

/// Throws UserError, with a parameter's name as an example, if no name matches the pattern.
void require_match(const std::string& key, const std::string& pattern,
                   const std::vector<NamedTensor>& parameters) {
  const bool is_any = std::ranges::any_of(
      parameters, [&](const NamedTensor& one) { return matches_pattern(pattern, one.name); });
  const std::string example =
      parameters.empty() ? ""
                         : concat("; parameter names look like ", parameters[parameters.size() / 2].name);
  require(is_any, key, ": ", pattern, " matches no parameter", example);
}

/// Parses an entry of train.groups: "PATTERN lr_factor=0.1 weight_decay=0". Returns pattern and settings.
std::pair<std::string, std::map<std::string, double>> entry_of(const std::string& text) {
  std::map<std::string, double> settings;
  std::istringstream words(text);
  std::string pattern;
  words >> pattern;
  for (std::string word; words >> word;) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    require(name == "lr_factor" || name == "weight_decay", "train.groups: ", text, ": ", name,
            " is neither lr_factor nor weight_decay");
    const auto value = number_in<double>(word.substr(std::min(equals + 1, word.size())));
    require(value && std::isfinite(*value) && *value >= 0, "train.groups: ", text, ": ", name,
            " needs a number of at least 0, as in ", name, "=0.1");
    require(settings.emplace(name, *value).second, "train.groups: ", text, ": ", name, " is given twice");
  }
  require(!settings.empty(), "train.groups: ", text,
          ": give lr_factor=K, weight_decay=K or both after the pattern");
  return {pattern, settings};
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, behind_star = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      behind_star = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;  // the last star takes one more character
      n = ++behind_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

ParameterRules::ParameterRules(const OptimizerOptions& options, const std::vector<NamedTensor>& parameters) {
  if (!options.freeze.empty()) freeze(options.freeze, parameters);
  if (!options.groups.empty()) divide(options.groups, parameters);
}

void ParameterRules::freeze(const std::string& list, const std::vector<NamedTensor>& parameters) {
  int64_t frozen = 0;
  for (const std::string& pattern : entries_of("train.freeze", list)) {
    require_match("train.freeze", pattern, parameters);
    for (NamedTensor& parameter : matching(parameters, pattern)) {
      parameter.tensor.set_requires_grad(false);
      ++frozen;
    }
  }
  require(!matching(parameters, "*").empty(), "train.freeze = ", list, " leaves nothing to train");
  description_ += concat("\nfrozen: ", frozen, " of ", counted(std::ssize(parameters), "tensor"));
}

void ParameterRules::divide(const std::string& list, const std::vector<NamedTensor>& parameters) {
  std::vector<std::string> told;
  for (const std::string& text : entries_of("train.groups", list)) {
    const auto [pattern, settings] = entry_of(text);
    require_match("train.groups", pattern, parameters);
    int64_t taken = 0;
    for (const NamedTensor& parameter : matching(parameters, pattern))
      taken += settings_.emplace(parameter.name, settings).second ? 1 : 0;
    require(taken > 0, "train.groups: ", pattern,
            " matches only parameters that are frozen or that an earlier entry has taken");
    told.push_back(concat(text, " (", counted(taken, "tensor"), ")"));
  }
  description_ += concat("\ngroups: ", joined(told));
}

ParameterGroup ParameterRules::group(const std::string& name, const ParameterGroup& usual) const {
  const auto found = settings_.find(name);
  if (found == settings_.end()) return usual;
  ParameterGroup group = usual;
  const std::map<std::string, double>& settings = found->second;
  if (const auto factor = settings.find("lr_factor"); factor != settings.end())
    group.learning_rate_factor = factor->second;
  if (const auto decay = settings.find("weight_decay"); decay != settings.end())
    group.own_weight_decay = decay->second;
  return group;
}

}  // namespace lockstep
