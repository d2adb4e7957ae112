// SPDX-License-Identifier: Apache-2.0
#include "snapshot/found_run.h"

#include <filesystem>

#include "config/config_file.h"
#include "core/error.h"
#include "core/file.h"
#include "snapshot/metrics.h"
#include "snapshot/parameters_hash.h"

namespace lockstep {
namespace {

std::string settings_path(const Config& config) { return config.log.dir + "/config.ini"; }
std::string data_path(const Config& config) { return config.log.dir + "/data.hash"; }

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

std::string hash_lines(const Artifacts& artifacts) {
  std::string lines;
  for (const auto& [name, artifact] : artifacts)
    lines += concat(name, " = ", hash_text(hash_of(artifact)), "\n");
  return lines;
}

void write_meaning(const Config& config, const Artifacts& artifacts) {
  write_file(settings_path(config), to_ini(config));
  write_file(data_path(config), hash_lines(artifacts));
}

std::optional<FoundRun> find_run(const Config& config, const Artifacts& artifacts) {
  const MetricsEnd end = read_metrics_end(config.log.dir + "/metrics.jsonl");
  if (end.step == 0) return std::nullopt;
  FoundRun run{
      .is_finished = !end.parameters_hash.empty(), .step = end.step, .parameters_hash = end.parameters_hash};
  try {
    const Config settings = read_settings(config);
    run.differences = differing_keys(settings, config);
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
