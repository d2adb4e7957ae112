// SPDX-License-Identifier: Apache-2.0
#include "train/parameter_rules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "core/error.h"
#include "core/text.h"

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
std::vector<NamedTensor> matching(const TrainingTask& task, const std::string& pattern) {
  std::vector<NamedTensor> found;
  for (const NamedTensor& parameter : task.parameters)
    if (parameter.tensor.requires_grad() && matches_pattern(pattern, parameter.name))
      found.push_back(parameter);
  return found;
}

bool names_any(const TrainingTask& task, const std::string& pattern) {
  return std::ranges::any_of(task.parameters, [&](const NamedTensor& parameter) {
    return matches_pattern(pattern, parameter.name);
  });
}

/// Returns a parameter's name as an example, for an error about a pattern.
std::string example_of(const TrainingTask& task) {
  return task.parameters.empty()
             ? ""
             : concat("; parameter names look like ", task.parameters[task.parameters.size() / 2].name);
}

void freeze(const std::string& list, TrainingTask& task) {
  int64_t frozen = 0;
  for (const std::string& pattern : entries_of("train.freeze", list)) {
    require(names_any(task, pattern), "train.freeze: ", pattern, " matches no parameter", example_of(task));
    for (NamedTensor& parameter : matching(task, pattern)) {
      parameter.tensor.set_requires_grad(false);
      ++frozen;
    }
  }
  require(!matching(task, "*").empty(), "train.freeze = ", list, " leaves nothing to train");
  task.description += concat("\nfrozen: ", frozen, " of ", counted(std::ssize(task.parameters), "tensor"));
}

/// An entry of train.groups: a pattern and its settings.
struct GroupEntry {
  std::string pattern;
  std::map<std::string, double> settings;

  ParameterGroup applied_to(ParameterGroup group) const {
    if (const auto factor = settings.find("lr_factor"); factor != settings.end())
      group.learning_rate_factor = factor->second;
    if (const auto decay = settings.find("weight_decay"); decay != settings.end())
      group.own_weight_decay = decay->second;
    return group;
  }
};

/// Parses an entry: "PATTERN lr_factor=0.1 weight_decay=0".
GroupEntry group_entry(const std::string& entry) {
  GroupEntry group;
  std::istringstream words(entry);
  words >> group.pattern;
  for (std::string word; words >> word;) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    require(name == "lr_factor" || name == "weight_decay", "train.groups: ", entry, ": ", name,
            " is neither lr_factor nor weight_decay");
    const auto value = number_in<double>(word.substr(std::min(equals + 1, word.size())));
    require(value && std::isfinite(*value) && *value >= 0, "train.groups: ", entry, ": ", name,
            " needs a number of at least 0, as in ", name, "=0.1");
    require(group.settings.emplace(name, *value).second, "train.groups: ", entry, ": ", name,
            " is given twice");
  }
  require(!group.settings.empty(), "train.groups: ", entry,
          ": give lr_factor=K, weight_decay=K or both after the pattern");
  return group;
}

void group(const std::string& list, TrainingTask& task) {
  std::vector<GroupEntry> entries;
  std::map<std::string, size_t> entry_of;  // keyed by the parameter's name
  std::vector<std::string> told;
  for (const std::string& text : entries_of("train.groups", list)) {
    const GroupEntry entry = group_entry(text);
    require(names_any(task, entry.pattern), "train.groups: ", entry.pattern, " matches no parameter",
            example_of(task));
    int64_t taken = 0;
    for (const NamedTensor& parameter : matching(task, entry.pattern))
      taken += entry_of.emplace(parameter.name, entries.size()).second ? 1 : 0;
    require(taken > 0, "train.groups: ", entry.pattern,
            " matches only parameters that are frozen or that an earlier entry has taken");
    entries.push_back(entry);
    told.push_back(concat(text, " (", counted(taken, "tensor"), ")"));
  }
  task.description += concat("\ngroups: ", joined(told));
  task.group = [entries, entry_of, usual = task.group](const std::string& name, const Tensor& tensor) {
    const ParameterGroup group = usual ? usual(name, tensor) : ParameterGroup{};
    const auto found = entry_of.find(name);
    return found == entry_of.end() ? group : entries[found->second].applied_to(group);
  };
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

void apply_parameter_rules(const TrainConfig& train, TrainingTask& task) {
  if (!train.freeze.empty()) freeze(train.freeze, task);
  if (!train.groups.empty()) group(train.groups, task);
}

}  // namespace lockstep
