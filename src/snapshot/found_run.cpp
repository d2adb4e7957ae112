// SPDX-License-Identifier: Apache-2.0
#include "lockstep/snapshot/found_run.h"

#include <fcntl.h>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/log.h"
#include "lockstep/metrics/metrics.h"
#include "lockstep/snapshot/snapshot_store.h"

namespace lockstep {
namespace {

std::string settings_path(const RunRequest& run) { return run.log_folder + "/config.ini"; }
std::string data_path(const RunRequest& run) { return run.log_folder + "/data.hash"; }

/// Reads a file that a run has written. Throws UserError also for a link or a FIFO, which would block.
std::string read_run_file(const std::string& path) {
  const OpenedFile opened = open_own_file(path, O_RDONLY);
  require(bool(opened.file), path, " cannot be read: ", opened.reason);
  return read_named_file(path);
}

/// Lists semantic keys whose values differ. Also lists train.steps if fewer steps are set than are completed.
std::vector<std::string> differences_of(const Settings& there, int64_t step, const RunRequest& here) {
  std::vector<std::string> all = differences(there, here.settings);
  if (here.steps > 0 && here.steps < step)
    all.push_back(concat("train.steps = ", here.steps, " here, but ", step, " are done there"));
  return all;
}

/// Returns the difference of an artifact that is not that of an earlier run.
std::string data_difference(const std::string& name, const RunRequest& run) {
  const bool is_key = name.find('.') != std::string::npos;
  if (is_key) return concat(name, ": its content differs");
  const bool is_download = run.settings["data.dataset"].find("://") != std::string::npos;
  const char* advice = is_download ? " (the cache folder keeps older copies as *.txt)" : "";
  return concat("data.dataset: the ", name, " differs", advice);
}

/// Lists how the data differ from those of an earlier run. `hashes` are the hash_lines() of that run.
std::vector<std::string> data_differences(const std::string& hashes, const Settings& there,
                                          const RunRequest& run) {
  std::vector<std::string> all;
  for (const auto& [name, artifact] : run.artifacts)
    if (hashes.find(hash_lines({{name, artifact}})) == std::string::npos)
      all.push_back(data_difference(name, run));
  // Without this text, a part of the training text validates.
  const std::string validation = "data.validation";
  if (hashes.find(validation + " = ") != std::string::npos && !run.artifacts.contains(validation))
    all.push_back(concat(validation, " = ", there[validation], " there, none here"));
  return all;
}

void append(std::vector<std::string>& all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

std::string hash_lines(const Artifacts& artifacts) {
  std::string lines;
  for (const auto& [name, artifact] : artifacts)
    lines += concat(name, " = ", hash_text(hash_of(artifact)), "\n");
  return lines;
}

std::map<std::string, std::string> hashes_in(const std::string& lines) {
  std::map<std::string, std::string> hashes;
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);)
    if (const size_t equals = line.rfind(" = "); equals != std::string::npos)
      hashes[line.substr(0, equals)] = line.substr(equals + 3);
  return hashes;
}

void write_fingerprint(const RunRequest& run) {
  try {
    write_file(settings_path(run), to_ini(run.settings));
    write_file(data_path(run), hash_lines(run.artifacts));
  } catch (const Error& problem) {
    log_error(concat(problem.what(), "; training continues"));
  }
}

std::optional<FoundRun> find_run(const RunRequest& run) {
  const MetricsEnd end = read_metrics_end(run.log_folder + "/metrics.jsonl");
  if (end.step == 0) return std::nullopt;
  FoundRun found{.is_finished = !end.parameters_hash.empty(),
                 .step = end.step,
                 .parameters_hash = end.parameters_hash,
                 .patience = end.patience};
  try {
    const std::string name = settings_path(run), text = read_run_file(name);
    const Settings there = settings_of_earlier_run(run.settings.keys(), text, name);
    found.differences = differences_of(there, found.step, run);
    found.settings = text;
    // A folder that was moved still contains its snapshots.
    found.snapshot_path = place_of_snapshots(found.settings, name, run.log_folder);
    if (std::error_code ignored; !std::filesystem::exists(data_path(run), ignored)) return found;
    const std::string hashes = read_run_file(data_path(run));
    std::vector<std::string> of_data = data_differences(hashes, there, run);
    if (of_data.empty() && hashes != hash_lines(run.artifacts))
      of_data.emplace_back("data.dataset: the data differ");
    append(found.differences, of_data);
  } catch (const UserError& problem) {
    found.differences = {concat("its settings cannot be read: ", problem.what())};
  }
  return found;
}

FoundRun run_of(const Snapshot& snapshot, const RunRequest& run) {
  FoundRun found{.settings = snapshot.configuration,
                 .is_finished = snapshot.is_finished,
                 .step = snapshot.step,
                 .snapshot_path = run.snapshots};
  const Settings there =
      settings_of_earlier_run(run.settings.keys(), snapshot.configuration, "the snapshot's configuration");
  found.differences = differences_of(there, found.step, run);
  append(found.differences, data_differences(hash_lines(snapshot.artifacts), there, run));
  return found;
}

std::string settings_to_resume(const RunRequest& run) {
  if (run.options.resume == Resume::never && restart_count() == 0) return "";
  const MetricsEnd end = read_metrics_end(run.log_folder + "/metrics.jsonl");
  int64_t step = end.step;
  bool is_finished = !end.parameters_hash.empty();
  std::string text;
  try {
    if (step > 0) text = read_run_file(settings_path(run));
  } catch (const UserError&) {
    return "";  // find_run() reports the problem
  }
  if (step == 0 && !run.snapshots.empty())
    if (const auto found = SnapshotStore(run.snapshots, 1).newest([](const std::string&) {})) {
      text = found->state().configuration;
      step = found->state().step;
      is_finished = found->state().is_finished;
    }
  if (text.empty()) return "";
  const Settings there = settings_of_earlier_run(run.settings.keys(), text, "the earlier run");
  RunRequest here = run;
  for (const Setting& open : inherited_values(run.settings, there))
    here.settings.replace(open.key, open.value);
  const bool is_other = !differences_of(there, step, here).empty() ||
                        here.settings["data.dataset"] != there["data.dataset"] ||
                        here.settings["data.validation"] != there["data.validation"];
  return is_finished && is_other ? "" : text;
}

std::optional<StoredSnapshot> snapshot_to_resume(const RunRequest& run) {
  const bool is_restart = restart_count() > 0;
  if (run.snapshots.empty() || (run.options.resume == Resume::never && !is_restart)) return std::nullopt;
  // RunFolder logs the damaged ones.
  auto found = SnapshotStore(run.snapshots, run.options.keep).newest([](const std::string&) {});
  return found && (is_restart || !found->state().is_finished) ? std::move(found) : std::nullopt;
}

}  // namespace lockstep
