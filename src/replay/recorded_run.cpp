// SPDX-License-Identifier: Apache-2.0
#include "lockstep/replay/recorded_run.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"
#include "lockstep/events/events.h"
#include "lockstep/job/keys.h"
#include "lockstep/json/json_field.h"
#include "lockstep/metrics/metrics.h"
#include "lockstep/snapshot/found_run.h"
#include "lockstep/snapshot/snapshot_options.h"
#include "lockstep/snapshot/snapshot_store.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Field = JsonField<Json>;

constexpr size_t most_line_bytes = 65536;

double number_or_nan(const Field& field) {
  return field.is_null() ? std::numeric_limits<double>::quiet_NaN() : field.number();
}

/// Returns the step of a line; nothing for a line of another kind or a torn one.
std::optional<RecordedStep> step_in(const std::string& text) {
  try {
    const Field line(text, "a line", most_line_bytes);
    if (!line.has("loss_bits")) return std::nullopt;
    return RecordedStep{.step = line["step"].whole<int64_t>(1),
                        .loss_bits = line["loss_bits"].text(),
                        .loss = number_or_nan(line["loss"]),
                        .gradient_norm = number_or_nan(line["grad_norm"]),
                        .learning_rate = number_or_nan(line["lr"]),
                        .validation_loss = line.has("val_loss")
                                               ? std::optional(number_or_nan(line["val_loss"]))
                                               : std::nullopt,
                        .validation_bits = line.has("val_loss_bits") ? line["val_loss_bits"].text() : ""};
  } catch (const UserError&) {
    return std::nullopt;
  }
}

/// Reads the steps, and where a line is not the next one. A last line without a line feed is torn, or the run
/// writes it now.
void read_steps(const std::string& path, RecordedRun& run) {
  std::ifstream lines(path, std::ios::binary);
  bool has_ended = false;
  for (std::string line; std::getline(lines, line);) {
    auto step = step_in(line);
    const bool is_next = step && step->step > run.last_step() && !has_ended;
    const bool is_end = !has_ended && line.starts_with("{\"done\":");
    const bool is_torn = lines.eof();
    if (is_next)
      run.steps.push_back(*std::move(step));
    else if (!is_end && !is_torn && run.odd_line_after < 0)
      run.odd_line_after = run.last_step();
    has_ended |= is_end;
  }
}

std::string required_file(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  std::error_code ignored;
  require(fs::is_regular_file(path, ignored), folder, " is not the folder of a run: it has no ", name,
          "; name the log.dir of a training");
  return path;
}

/// Logs the problem of a damaged snapshot once.
void warn_once(const std::string& problem) {
  static std::set<std::string> known;
  if (known.insert(problem).second) log_warning(problem);
}

}  // namespace

const RecordedStep* RecordedRun::step(int64_t number) const {
  const auto found = std::ranges::lower_bound(steps, number, {}, &RecordedStep::step);
  return found != steps.end() && found->step == number ? &*found : nullptr;
}

RecordedStart RecordedRun::start_of(int64_t number) const {
  RecordedStart newest;
  for (const RecordedStart& start : starts)
    if (start.step < number) newest = start;
  return newest;
}

void RecordedRun::require_step(int64_t number, bool or_next) const {
  const bool is_open = parameters_hash.empty() && number_in<int64_t>(settings["train.steps"]) > last_step();
  const int64_t last = last_step() + (or_next && is_open ? 1 : 0);
  require(number >= 1 && number <= last, folder, " has no step ", number, ": its steps are 1 to ",
          last_step());
}

std::map<int64_t, StoredSnapshot> RecordedRun::read_snapshots() const {
  std::map<int64_t, StoredSnapshot> all;
  int64_t most_steps = std::numeric_limits<int64_t>::max() - 1;
  while (auto found = snapshot_before(most_steps)) {
    const int64_t step = found->state().step;
    all.emplace(step, *std::move(found));
    most_steps = step - 1;
  }
  return all;
}

std::optional<StoredSnapshot> RecordedRun::snapshot_before(int64_t most_steps) const {
  if (snapshots.empty()) return std::nullopt;
  return SnapshotStore(snapshots, 1).newest(warn_once, most_steps + 1);
}

std::string scope_hint(const RecordedStart& start, const std::string& here) {
  if (start.scope.empty() || start.scope == here) return "";
  return concat("; the run has the scope of bits ", start.scope, ", and here it is ", here);
}

std::string shortest_text(double number) { return number_format<double>({}).write(number); }

RecordedRun read_run(const std::string& given, const SettingLayer& overrides) {
  std::string folder = given;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const std::string metrics = required_file(folder, "metrics.jsonl");
  const std::string settings = required_file(folder, "config.ini");
  const std::string text = read_named_file(settings);
  RecordedRun run{.folder = folder, .settings = settings_of_earlier_run(job_keys(), text, settings)};
  run.settings.replace("log.dir", folder);
  run.semantic_lines = semantic_lines(job_keys(), text, settings);
  run.data_lines = read_file(folder + "/data.hash").value_or("");
  run.data = hashes_in(run.data_lines);
  read_steps(metrics, run);
  require(!run.steps.empty(), metrics, " has no step: the run has not ended one");
  run.parameters_hash = read_metrics_end(metrics).parameters_hash;
  for (const RunEvent& event : read_events(folder))
    if (event.what == "start")
      run.starts.push_back({event.step, event.fact("program"), event.fact("build"), event.fact("scope")});
  run.snapshots = place_of_snapshots(text, settings, folder);
  for (const auto& [key, value, origin] : overrides)
    if (key == "snapshot.path")
      run.snapshots = place_of_snapshots(concat("[snapshot]\npath = ", value), "command line", folder);
  return run;
}

}  // namespace lockstep
