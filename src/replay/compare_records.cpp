// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/text.h"
#include "lockstep/job/keys.h"
#include "lockstep/replay/explain.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Adds the keys whose values differ.
void compare_keys(const RecordedRun& a, const RecordedRun& b, Explanation& explanation) {
  // These name places, which differ between any two runs.
  const std::set<std::string> places = {"log.dir", "snapshot.path"};
  for (const Key& key : job_keys().keys()) {
    const std::string &in_a = a.settings[key.name], &in_b = b.settings[key.name];
    if (in_a == in_b || places.contains(key.name)) continue;
    const bool is_decisive = key.key_class == KeyClass::semantic;
    (is_decisive ? explanation.decisive : explanation.others).push_back({"key", key.name, in_a, in_b});
  }
}

void compare_data(const RecordedRun& a, const RecordedRun& b, Explanation& explanation) {
  if (a.data.empty() || b.data.empty()) return;  // a file is missing, which is no difference of the data
  std::set<std::string> names;
  for (const auto& [name, hash] : a.data) names.insert(name);
  for (const auto& [name, hash] : b.data) names.insert(name);
  const auto hash_in = [](const RecordedRun& run, const std::string& name) {
    const auto found = run.data.find(name);
    return found == run.data.end() ? "none" : found->second;
  };
  for (const std::string& name : names)
    if (hash_in(a, name) != hash_in(b, name))
      explanation.decisive.push_back({"data", name, hash_in(a, name), hash_in(b, name)});
}

/// Returns the parts of a list with commas that the other list lacks.
std::string parts_beyond(const std::string& text, const std::string& other) {
  const auto parts_of = [](const std::string& list) {
    std::vector<std::string> parts;
    std::istringstream stream(list);
    for (std::string part; std::getline(stream, part, ',');) parts.push_back(trimmed(part));
    return parts;
  };
  const std::vector<std::string> known = parts_of(other);
  std::vector<std::string> beyond;
  for (const std::string& part : parts_of(text))
    if (std::ranges::count(known, part) == 0) beyond.push_back(part);
  return beyond.empty() ? text : joined(beyond);
}

void compare_starts(const RecordedRun& a, const RecordedRun& b, int64_t last, Explanation& explanation) {
  const auto facts_of = [last](const RecordedRun& run, std::string RecordedStart::*fact) {
    std::vector<std::string> facts;
    for (const RecordedStart& start : run.starts)
      if (start.step < last && (facts.empty() || facts.back() != start.*fact)) facts.push_back(start.*fact);
    return joined(facts, " then ");
  };
  const std::string scope_a = facts_of(a, &RecordedStart::scope),
                    scope_b = facts_of(b, &RecordedStart::scope);
  // A run of an earlier version did not record it.
  if (scope_a != scope_b && !scope_a.empty() && !scope_b.empty())
    explanation.decisive.push_back({"scope", "scope of bits", scope_a, scope_b});
  const RecordedStart start_a = a.start_of(last), start_b = b.start_of(last);
  const std::string program_a = fs::path(start_a.program).filename().string();
  const std::string program_b = fs::path(start_b.program).filename().string();
  if (program_a != program_b && !program_a.empty() && !program_b.empty())
    explanation.decisive = {{"program", "program", program_a, program_b}};
  const std::string build_a = facts_of(a, &RecordedStart::build),
                    build_b = facts_of(b, &RecordedStart::build);
  if (build_a != build_b && program_a == program_b && !build_a.empty() && !build_b.empty())
    explanation.builds.push_back(
        {"build", "build", parts_beyond(build_a, build_b), parts_beyond(build_b, build_a)});
}

std::optional<StepDifference> difference_of(const RecordedStep& a, const RecordedStep& b) {
  const auto with_bits = [](const RecordedStep& step) {
    return concat(step.loss, " (", step.loss_bits, ")");
  };
  if (!same_number(a.learning_rate, b.learning_rate))
    return StepDifference{a.step, "the learning rate", shortest_text(a.learning_rate),
                          shortest_text(b.learning_rate)};
  if (a.loss_bits != b.loss_bits) return StepDifference{a.step, "the loss", with_bits(a), with_bits(b)};
  if (!same_number(a.gradient_norm, b.gradient_norm))
    return StepDifference{a.step, "the gradient norm", shortest_text(a.gradient_norm),
                          shortest_text(b.gradient_norm)};
  if (a.validation_bits != b.validation_bits && !a.validation_bits.empty() && !b.validation_bits.empty())
    return StepDifference{a.step, "the validation loss", a.validation_bits, b.validation_bits};
  return std::nullopt;
}

std::optional<StepDifference> first_difference(const RecordedRun& a, const RecordedRun& b) {
  for (const RecordedStep& step : a.steps)
    if (const RecordedStep* other = b.step(step.step))
      if (auto difference = difference_of(step, *other)) return difference;
  const bool are_complete = !a.parameters_hash.empty() && !b.parameters_hash.empty();
  if (are_complete && a.last_step() == b.last_step() && a.parameters_hash != b.parameters_hash)
    return StepDifference{a.last_step(), "the hash of the final parameters", a.parameters_hash,
                          b.parameters_hash};
  return std::nullopt;
}

/// Returns the place of the first byte that differs in two files of data, if both are files.
std::string place_in_data(const RecordedRun& a, const RecordedRun& b, const std::string& artifact) {
  const std::string key = artifact.find('.') != std::string::npos ? artifact : "data.dataset";
  if (job_keys().known(key) == nullptr) return "";
  const std::string &path_a = a.settings[key], &path_b = b.settings[key];
  std::error_code ignored;
  if (path_a == path_b || !fs::is_regular_file(path_a, ignored) || !fs::is_regular_file(path_b, ignored))
    return "";
  const std::string text_a = read_file(path_a).value_or(""), text_b = read_file(path_b).value_or("");
  const auto [at_a, at_b] = std::ranges::mismatch(text_a, text_b);
  if (at_a == text_a.end() && at_b == text_b.end()) return "";
  const auto byte = at_a - text_a.begin();
  const auto line = std::count(text_a.begin(), at_a, '\n') + 1;
  return concat(": ", path_a, " and ", path_b, " differ from byte ", byte, " on, in line ", line);
}

void find_decisive_cause(const RecordedRun& a, const RecordedRun& b, Explanation& explanation) {
  const FactDifference& first = explanation.decisive.front();
  explanation.cause = first.kind == "program" ? "build" : first.kind;
  std::vector<std::string> names;
  std::string place;
  for (const FactDifference& difference : explanation.decisive) {
    names.push_back(difference.kind == "data" ? "the " + difference.name + " of the data" : difference.name);
    if (difference.kind == "data" && place.empty()) place = place_in_data(a, b, difference.name);
  }
  explanation.because = concat(joined(names), names.size() == 1 ? " differs" : " differ", place, ".");
}

/// Returns the first step of which both runs have a snapshot, and with other tensors.
std::optional<StepDifference> first_other_snapshot(const RecordedRun& a, const RecordedRun& b) {
  const std::map<int64_t, StoredSnapshot> of_b = b.read_snapshots();
  for (const auto& [step, in_a] : a.read_snapshots()) {
    const auto in_b = of_b.find(step);
    if (in_b == of_b.end() || in_a.tensors_hash() == in_b->second.tensors_hash()) continue;
    return StepDifference{step, "the hash of the snapshot", hash_text(in_a.tensors_hash()),
                          hash_text(in_b->second.tensors_hash())};
  }
  return std::nullopt;
}

}  // namespace

Explanation compare_records(const RecordedRun& a, const RecordedRun& b) {
  Explanation explanation{.a = a.folder, .b = b.folder};
  explanation.compared = std::min(a.last_step(), b.last_step());
  compare_keys(a, b, explanation);
  compare_data(a, b, explanation);
  explanation.first = first_difference(a, b);
  if (!explanation.first && explanation.decisive.empty()) explanation.first = first_other_snapshot(a, b);
  compare_starts(a, b, explanation.first ? explanation.first->step : explanation.compared, explanation);
  if (!explanation.decisive.empty() && explanation.first) find_decisive_cause(a, b, explanation);
  return explanation;
}

}  // namespace lockstep
