// SPDX-License-Identifier: Apache-2.0
#include "apps/tutorial/exercises/check/verdict.h"

#include <algorithm>
#include <filesystem>

#include "apps/tutorial/exercises/exercise.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

/// The place of the first difference of two traces.
struct Parting {
  size_t start = 0;
  size_t line = 0;
};

using Lines = std::vector<std::vector<TraceLine>>;

std::optional<Parting> find_parting(const Lines& yours, const Lines& solution) {
  for (size_t start = 0; start < solution.size(); ++start) {
    if (start == yours.size()) return Parting{.start = start, .line = 0};
    const auto [mine, theirs] = std::mismatch(
        yours[start].begin(), yours[start].end(), solution[start].begin(), solution[start].end(),
        [](const TraceLine& a, const TraceLine& b) { return a.text == b.text; });
    if (mine != yours[start].end() || theirs != solution[start].end())
      return Parting{.start = start, .line = static_cast<size_t>(mine - yours[start].begin())};
  }
  return {};
}

const TraceLine* line_at(const Lines& lines, const Parting& place) {
  const bool is_there = place.start < lines.size() && place.line < lines[place.start].size();
  return is_there ? &lines[place.start][place.line] : nullptr;
}

TraceLine trace_line(const Point& point) {
  const char* const what = point.is_evaluation ? " evaluation_bits " : " loss_bits ";
  return {.text = concat("step ", point.step, what, bits_of(point.loss)), .point = point};
}

std::string after_start(size_t start) {
  static const char* const words[] = {"", " after the second start", " after the third start"};
  return words[std::min<size_t>(start, 2)];
}

std::string place_of(const Trial& trial, const Parting& place, const Point& point) {
  const char* const what = point.is_evaluation ? "the evaluation after step " : "step ";
  const int64_t epoch = (point.step - 1) / steps_per_epoch(trial.job);
  return concat(what, point.step, " (epoch ", epoch, place.start > 0 ? "," : "", after_start(place.start),
                ")");
}

/// Describes how the lines differ.
std::string describe_parting(const Trial& trial, const Parting& place, const TrialRun& yours,
                             const TrialRun& solution) {
  const TraceLine* mine = line_at(yours.starts, place);
  const TraceLine* theirs = line_at(solution.starts, place);
  if (mine && theirs && mine->point && theirs->point && mine->point->step == theirs->point->step &&
      mine->point->is_evaluation == theirs->point->is_evaluation)
    return concat("differs from the solution at ", place_of(trial, place, *theirs->point), ": yours is ",
                  bits_of(mine->point->loss), ", the solution's ", bits_of(theirs->point->loss));
  if (mine && place.line > 0 && mine->text == yours.starts[place.start][place.line - 1].text)
    return concat("reports '", mine->text, "' more than once: do several ranks report?");
  const auto quoted = [](const TraceLine* line) { return line ? "'" + line->text + "'" : "nothing more"; };
  return concat("differs from the solution in line ", place.line + 1, " of its report",
                after_start(place.start), ": yours is ", quoted(mine), ", the solution's ", quoted(theirs));
}

std::vector<std::vector<Point>> points_of(const Lines& lines) {
  std::vector<std::vector<Point>> points;
  for (const auto& start : lines) {
    points.emplace_back();
    for (const TraceLine& line : start)
      if (line.point) points.back().push_back(*line.point);
  }
  return points;
}

/// Returns whether the points equal those of a run with this mistake. After a failure only the points before
/// it are compared.
bool has_bits_of(const std::vector<std::vector<Point>>& points, bool has_failed, const Trial& trial,
                 Mistake mistake) {
  const std::vector<std::vector<Point>> expected = trace(trial.job, mistake);
  for (size_t start = 0; start < points.size(); ++start) {
    const auto [mine, theirs] = std::mismatch(points[start].begin(), points[start].end(),
                                              expected[start].begin(), expected[start].end());
    if (mine != points[start].end()) return false;
    if (theirs != expected[start].end() && !has_failed) return false;
  }
  return has_failed || points.size() == expected.size();
}

/// Returns "these are the bits of a run that ..." for a known mistake, else an empty text.
std::string known_mistake(const Trial& trial, const Parting& place, const TrialRun& yours) {
  const std::vector<std::vector<Point>> points = points_of(yours.starts);
  const auto is_of = [&](Mistake mistake) {
    return has_bits_of(points, !yours.failure.empty(), trial, mistake);
  };
  if (!line_at(yours.starts, place) || is_of(Mistake::none)) return "";
  for (const Mistake mistake : all_mistakes())
    if (is_of(mistake))
      return concat("\n  these are the bits of a run that ", describe(mistake), " [", name(mistake), "]");
  return "";
}

size_t count_steps(const Lines& lines) {
  size_t count = 0;
  for (const auto& start : points_of(lines)) count += start.size();
  return count;
}

/// Returns the run with its losses replaced by these points.
TrialRun with_points(TrialRun run, const std::vector<std::vector<Point>>& points) {
  for (size_t start = 0; start < run.starts.size(); ++start) {
    std::vector<TraceLine>& lines = run.starts[start];
    auto next = points[start].begin();
    for (TraceLine& line : lines)
      if (line.point && next != points[start].end()) line = trace_line(*next++);
    while (next != points[start].end()) lines.push_back(trace_line(*next++));
  }
  return run;
}

std::string arguments_of(const Trial& trial) {
  std::string words = " with";
  for (const std::string& argument : trial.starts.front()) words += " " + argument;
  return words;
}

std::string require_program(const std::string& path, const std::string& name) {
  require(std::filesystem::exists(path), "there is no ", path,
          ": build it with cmake --build --preset cpu --target ", name);
  return path;
}

}  // namespace

Verdict compare(const Trial& trial, const TrialRun& yours, const TrialRun& solution) {
  if (!yours.blank.empty()) return {.is_solved = false, .words = "still blank: " + yours.blank};
  const std::string failure = yours.failure.empty() ? "" : concat("\n  it ", yours.failure);
  const std::optional<Parting> parting = find_parting(yours.starts, solution.starts);
  if (parting && line_at(yours.starts, *parting))
    return {.is_solved = false,
            .words = describe_parting(trial, *parting, yours, solution) +
                     known_mistake(trial, *parting, yours) + failure};
  if (!yours.failure.empty())
    return {.is_solved = false,
            .words = concat(yours.failure, "\n  its report before that, ", count_steps(yours.starts),
                            " losses, has the solution's bits")};
  if (parting) return {.is_solved = false, .words = describe_parting(trial, *parting, yours, solution)};
  return {.is_solved = true, .words = ""};
}

Verdict imagine(const Exercise& exercise, Mistake mistake, const std::string& solution) {
  require_program(solution, "solution_" + exercise.name);
  for (const Trial& trial : exercise.trials) {
    const TrialRun right = run_trial(solution, trial);
    const Verdict verdict = compare(trial, with_points(right, trace(trial.job, mistake)), right);
    if (!verdict.is_solved) return verdict;
  }
  return {.is_solved = true, .words = "solved: this mistake does not show in its bits"};
}

Verdict check(const Exercise& exercise, const std::string& program, const std::string& solution,
              double deadline_seconds) {
  require_program(program, exercise.name);
  require_program(solution, "solution_" + exercise.name);
  size_t steps = 0;
  for (const Trial& trial : exercise.trials) {
    const TrialRun yours = run_trial(program, trial, deadline_seconds);
    if (!yours.blank.empty()) return compare(trial, yours, {});
    const TrialRun right = run_trial(solution, trial);
    expect(right.failure.empty(), "the solution of ", exercise.name, " ", right.failure);
    Verdict verdict = compare(trial, yours, right);
    if (!verdict.is_solved && exercise.trials.size() > 1)
      verdict.words += "\n  it was started" + arguments_of(trial);
    if (!verdict.is_solved) return verdict;
    steps += count_steps(right.starts);
  }
  return {.is_solved = true,
          .words = concat("solved, ", steps, " of ", steps, " losses have the solution's bits")};
}

}  // namespace lockstep
