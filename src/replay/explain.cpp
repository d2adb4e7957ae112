// SPDX-License-Identifier: Apache-2.0
#include "lockstep/replay/explain.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/replay/explain_parts.h"
#include "lockstep/replay/run_tasks.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

/// Finds the cause of a difference between runs that had to be equal.
void find_cause(const ComparedRuns& runs, const ExplainOptions& options, Explanation& explanation) {
  const int64_t step = explanation.first->step;
  const int64_t a = first_other_step(runs.a, runs.tasks, runs.world, step);
  const int64_t b = first_other_step(runs.b, runs.tasks, runs.world, step);
  const bool both = a == 0 && b == 0;
  if (both && find_wrong_snapshot(runs, step, explanation)) return;
  BuildsResult builds = BuildsResult::equal;
  if (!explanation.builds.empty()) builds = compare_builds(runs, options, step, explanation);
  if (builds == BuildsResult::differ) return;
  const std::string about_builds = std::exchange(explanation.because, "");
  if (a == 0 && b > 0) {
    describe_fault(runs, runs.a, runs.b, "B", b, explanation);
  } else if (a > 0 && b == 0) {
    describe_fault(runs, runs.b, runs.a, "A", a, explanation);
  } else {
    explanation.cause = "unknown";
    explanation.because =
        both
            ? "Both runs are computed again with their bits, each from its own snapshots, and no snapshot is "
              "wrong."
            : concat("This build computes neither: step ", a, " of A and step ", b, " of B have other bits.");
  }
  if (builds == BuildsResult::equal) return;
  // A fault and another build look alike. A wrong record does not.
  if (explanation.cause != "record") explanation.cause = "build";
  explanation.because += " The builds differ. " + about_builds;
}

Json json_of(const std::vector<FactDifference>& differences) {
  Json json = Json::array();
  for (const auto& [kind, name, a, b] : differences)
    json.push_back({{"kind", kind}, {"name", name}, {"a", a}, {"b", b}});
  return json;
}

Json json_of(const DifferencePlace& place) {
  Json json = {{"step", place.step}};
  const auto add = [&json](const char* name, const std::string& text) {
    if (!text.empty()) json[name] = text;
  };
  if (place.replica >= 0) json["replica"] = place.replica;
  if (place.micro_batch >= 0) json["micro_batch"] = place.micro_batch;
  add("direction", place.direction);
  add("operation", place.operation);
  add("parameter", place.parameter);
  add("element", place.element);
  add("a", place.a);
  add("b", place.b);
  return json;
}

std::string shown(const std::string& value) { return value.empty() ? "empty" : shortened(value, 200); }

std::string list_of(const std::vector<FactDifference>& differences, size_t most) {
  std::string text;
  for (size_t i = 0; i < differences.size() && i < most; ++i)
    text += concat("  ", differences[i].name, ": ", shown(differences[i].a), " in A, ",
                   shown(differences[i].b), " in B\n");
  if (differences.size() > most) text += concat("  and ", differences.size() - most, " more\n");
  return text;
}

}  // namespace

Explanation explain(const RecordedRun& a, const RecordedRun& b, const World& world,
                    const ExplainOptions& options) {
  settings_of_replay(a, options.overrides);  // refuses a key that fixes the bits
  Explanation explanation = compare_records(a, b);
  if (!explanation.decisive.empty()) return explanation;
  if (!explanation.first) return explanation;
  try {
    const auto tasks = open_tasks(a, options.overrides, world);
    find_cause({a, b, *tasks, world}, options, explanation);
  } catch (const UserError& problem) {
    explanation.cause = "unknown";
    explanation.because = concat("the steps cannot be computed again: ", problem.what());
  }
  return explanation;
}

std::string describe(const Explanation& explanation) {
  std::string text = concat("A: ", explanation.a, "\nB: ", explanation.b, "\n\n");
  if (explanation.had_to_be_equal())
    text += "They had to be equal: the keys that fix the bits, the data and the scope are the same.\n";
  else
    text += "They did not have to be equal:\n" + list_of(explanation.decisive, 12);
  if (!explanation.builds.empty()) text += "Their builds differ:\n" + list_of(explanation.builds, 4);
  if (!explanation.others.empty()) text += "Other keys differ, too:\n" + list_of(explanation.others, 6);
  if (explanation.first)
    text +=
        concat("\nThe first difference is in step ", explanation.first->step, ": ", explanation.first->what,
               " is ", explanation.first->a, " in A and ", explanation.first->b, " in B.\n");
  else
    text += concat("\nAll steps that both have are equal, up to step ", explanation.compared, ".\n");
  if (!explanation.because.empty()) text += concat("\nCause: ", explanation.because, "\n");
  return text;
}

std::string to_json(const Explanation& explanation) {
  Json json = {{"a", explanation.a},
               {"b", explanation.b},
               {"had_to_be_equal", explanation.had_to_be_equal()},
               {"is_equal", explanation.is_equal()},
               {"compared_steps", explanation.compared},
               {"decisive", json_of(explanation.decisive)},
               {"builds", json_of(explanation.builds)},
               {"others", json_of(explanation.others)},
               {"first_difference", nullptr},
               {"cause", explanation.cause},
               {"run", explanation.run},
               {"because", explanation.because},
               {"place", nullptr}};
  if (const auto& first = explanation.first)
    json["first_difference"] = {
        {"step", first->step}, {"what", first->what}, {"a", first->a}, {"b", first->b}};
  if (explanation.place) json["place"] = json_of(*explanation.place);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
