// SPDX-License-Identifier: Apache-2.0
#include "snapshot/found_run.h"

#include <filesystem>

#include "config/config_file.h"
#include "core/error.h"
#include "core/file.h"
#include "core/heartbeat.h"
#include "core/log.h"
#include "snapshot/metrics.h"
#include "snapshot/parameters_hash.h"

namespace lockstep {
namespace {

std::string settings_path(const Config& config) { return config.log.dir + "/config.ini"; }
std::string data_path(const Config& config) { return config.log.dir + "/data.hash"; }

/// Keys that fix the bits and have other values, and fewer steps than are done.
std::vector<std::string> differences_of(const Config& there, int64_t step, const Config& here) {
  std::map<std::string, std::string> values;
  for (const ConfigValue& value : config_values(there)) values[value.key] = value.value;
  std::vector<std::string> differences;
  for (const ConfigValue& value : config_values(here)) {
    const bool is_open = value.key == "train.decay_steps" && value.value == "0";
    if (value.key_class == KeyClass::semantic && values[value.key] != value.value && !is_open)
      differences.push_back(concat(value.key, " = ", values[value.key], " there, ", value.value, " here"));
  }
  if (here.train.steps > 0 && here.train.steps < step)
    differences.push_back(concat("train.steps = ", here.train.steps, " here, but ", step, " are done there"));
  return differences;
}

}  // namespace

std::string hash_lines(const Artifacts& artifacts) {
  std::string lines;
  for (const auto& [name, artifact] : artifacts)
    lines += concat(name, " = ", hash_text(hash_of(artifact)), "\n");
  return lines;
}

void write_meaning(const Config& config, const Artifacts& artifacts) {
  try {
    write_file(settings_path(config), to_ini(config));
    write_file(data_path(config), hash_lines(artifacts));
  } catch (const Error& problem) {
    log_error(concat(problem.what(), "; training goes on"));
  }
}

std::optional<FoundRun> find_run(const Config& config, const Artifacts& artifacts) {
  const MetricsEnd end = read_metrics_end(config.log.dir + "/metrics.jsonl");
  if (end.step == 0) return std::nullopt;
  FoundRun run{
      .is_finished = !end.parameters_hash.empty(), .step = end.step, .parameters_hash = end.parameters_hash};
  try {
    const Config& settings = run.settings =
        config_of_earlier_run(read_config_file(settings_path(config)), settings_path(config));
    run.differences = differences_of(settings, run.step, config);
    // A folder that was moved took its snapshots along.
    run.snapshot_path = settings.snapshot.path == default_snapshot_path(settings)
                            ? default_snapshot_path(config)
                            : settings.snapshot.path;
    std::error_code ignored;
    const bool has_hash = std::filesystem::exists(data_path(config), ignored);
    if (has_hash && read_config_file(data_path(config)) != hash_lines(artifacts))
      run.differences.emplace_back("data.dataset: the data are others");
  } catch (const UserError& problem) {
    run.differences = {concat("its settings cannot be read: ", problem.what())};
  }
  return run;
}

FoundRun run_of(const Snapshot& snapshot, const Config& config, const Artifacts& artifacts) {
  FoundRun run{.settings = config_of_earlier_run(snapshot.configuration, "the snapshot's configuration"),
               .is_finished = snapshot.is_finished,
               .step = snapshot.step,
               .snapshot_path = config.snapshot.path};
  run.differences = differences_of(run.settings, run.step, config);
  for (const auto& [name, artifact] : artifacts)
    if (!snapshot.artifacts.contains(name) || snapshot.artifacts.at(name) != artifact)
      run.differences.push_back(concat("data.dataset: the ", name, " is another"));
  return run;
}

std::string settings_to_go_on_with(const Config& config) {
  if (config.snapshot.resume == "never" && restart_count() == 0) return "";
  const MetricsEnd end = read_metrics_end(config.log.dir + "/metrics.jsonl");
  int64_t step = end.step;
  bool is_finished = !end.parameters_hash.empty();
  std::string text;
  try {
    if (step > 0) text = read_config_file(settings_path(config));
  } catch (const UserError&) {
    return "";  // find_run() says what is wrong with them
  }
  if (step == 0 && !config.snapshot.path.empty())
    if (const auto found = SnapshotStore(config.snapshot.path, 1).newest([](const std::string&) {})) {
      text = found->state().configuration;
      step = found->state().step;
      is_finished = found->state().is_finished;
    }
  if (text.empty()) return "";
  const Config there = config_of_earlier_run(text, "the earlier run");
  Config here = config;
  adopt_unset(here, there);
  const bool is_other = !differences_of(there, step, here).empty() || here.data.dataset != there.data.dataset;
  return is_finished && is_other ? "" : text;
}

}  // namespace lockstep
