// SPDX-License-Identifier: Apache-2.0
#include "train/found_run.h"

#include <filesystem>

#include "core/error.h"
#include "train/config_file.h"
#include "train/metrics.h"

namespace lockstep {
namespace {

std::string settings_path(const Config& config) { return config.log.dir + "/config.ini"; }

/// Keys that fix the bits and have other values.
std::vector<std::string> differing_keys(const Config& there, const Config& here) {
  std::map<std::string, std::string> values;
  for (const ConfigValue& value : config_values(there)) values[value.key] = value.value;
  std::vector<std::string> differences;
  for (const ConfigValue& value : config_values(here))
    if (value.key_class == KeyClass::semantic && values[value.key] != value.value)
      differences.push_back(concat(value.key, " = ", values[value.key], " there, ", value.value, " here"));
  return differences;
}

/// The settings that a run in log.dir was started with.
Config read_settings(const Config& config) {
  const std::string path = settings_path(config);
  return config_from_ini(read_config_file(path), path);
}

}  // namespace

std::optional<FoundRun> find_run(const Config& config) {
  const MetricsEnd end = read_metrics_end(config.log.dir + "/metrics.jsonl");
  if (end.step == 0) return std::nullopt;
  FoundRun run{
      .is_finished = !end.parameters_hash.empty(), .step = end.step, .parameters_hash = end.parameters_hash};
  try {
    const Config settings = read_settings(config);
    run.differences = differing_keys(settings, config);
    run.snapshot_path = settings.snapshot.path;
  } catch (const UserError& problem) {
    run.differences = {concat("its settings cannot be read: ", problem.what())};
  }
  return run;
}

FoundRun run_of(const Snapshot& snapshot, const Config& config,
                const std::map<std::string, std::string>& artifacts) {
  const Config settings = config_from_ini(snapshot.configuration, "the snapshot's configuration");
  FoundRun run{.differences = differing_keys(settings, config),
               .is_finished = snapshot.is_finished,
               .step = snapshot.step,
               .snapshot_path = config.snapshot.path};
  for (const auto& [name, artifact] : artifacts)
    if (!snapshot.artifacts.contains(name) || snapshot.artifacts.at(name) != artifact)
      run.differences.push_back(concat("data.dataset: the ", name, " is another"));
  return run;
}

int64_t replicas_of_unfinished_run(const Config& config) {
  const MetricsEnd end = read_metrics_end(config.log.dir + "/metrics.jsonl");
  if (end.step == 0 || !end.parameters_hash.empty()) return 0;
  try {
    return read_settings(config).dist.replicas;
  } catch (const UserError&) {
    return 0;  // find_run() says what is wrong with them
  }
}

}  // namespace lockstep
