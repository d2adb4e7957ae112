// SPDX-License-Identifier: Apache-2.0
#include "snapshot/found_run.h"

#include <fcntl.h>
#include <filesystem>
#include <system_error>
#include <utility>

#include "comm/heartbeat.h"
#include "config/config_schema.h"
#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "metrics/metrics.h"
#include "snapshot/snapshot_store.h"

namespace lockstep {
namespace {

std::string settings_path(const Config& config) { return config.log.dir + "/config.ini"; }
std::string data_path(const Config& config) { return config.log.dir + "/data.hash"; }

/// Reads a file that a run has written. Throws UserError also for a link or a FIFO, which would block.
std::string read_run_file(const std::string& path) {
  const OpenedFile opened = open_own_file(path, O_RDONLY);
  require(bool(opened.file), path, " cannot be read: ", opened.reason);
  return read_named_file(path);
}

/// Lists semantic keys whose values differ. Also lists train.steps if fewer steps are set than are completed.
std::vector<std::string> differences_of(const Config& there, int64_t step, const Config& here) {
  std::vector<std::string> differences;
  for (const ConfigKey& key : config_schema()) {
    const std::string was = key.text(there), is = key.text(here);
    const bool is_open = key.name == "train.decay_steps" && is == "0";
    if (key.key_class == KeyClass::semantic && was != is && !is_open)
      differences.push_back(concat(key.name, " = ", was, " there, ", is, " here"));
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

void write_fingerprint(const Config& config, const Artifacts& artifacts) {
  try {
    write_file(settings_path(config), to_ini(config));
    write_file(data_path(config), hash_lines(artifacts));
  } catch (const Error& problem) {
    log_error(concat(problem.what(), "; training continues"));
  }
}

std::optional<FoundRun> find_run(const Config& config, const Artifacts& artifacts) {
  const MetricsEnd end = read_metrics_end(config.log.dir + "/metrics.jsonl");
  if (end.step == 0) return std::nullopt;
  FoundRun run{.is_finished = !end.parameters_hash.empty(),
               .step = end.step,
               .parameters_hash = end.parameters_hash,
               .patience = end.patience};
  try {
    const Config& settings = run.settings =
        config_of_earlier_run(read_run_file(settings_path(config)), settings_path(config));
    run.differences = differences_of(settings, run.step, config);
    // A folder that was moved still contains its snapshots.
    run.snapshot_path = settings.snapshot.path == default_snapshot_path(settings)
                            ? default_snapshot_path(config)
                            : settings.snapshot.path;
    const std::string hashes = data_path(config);
    if (std::error_code ignored;
        std::filesystem::exists(hashes, ignored) && read_run_file(hashes) != hash_lines(artifacts))
      run.differences.emplace_back("data.dataset: the data differ");
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
  const bool is_download = config.data.dataset.find("://") != std::string::npos;
  const char* advice = is_download ? " (the cache folder keeps older copies as *.txt)" : "";
  for (const auto& [name, artifact] : artifacts)
    if (!snapshot.artifacts.contains(name) || snapshot.artifacts.at(name) != artifact)
      run.differences.push_back(name.find('.') != std::string::npos  // a key
                                    ? concat(name, ": its content differs")
                                    : concat("data.dataset: the ", name, " differs", advice));
  return run;
}

std::string settings_to_go_on_with(const Config& config) {
  if (config.snapshot.resume == "never" && restart_count() == 0) return "";
  const MetricsEnd end = read_metrics_end(config.log.dir + "/metrics.jsonl");
  int64_t step = end.step;
  bool is_finished = !end.parameters_hash.empty();
  std::string text;
  try {
    if (step > 0) text = read_run_file(settings_path(config));
  } catch (const UserError&) {
    return "";  // find_run() reports the problem
  }
  if (step == 0 && !config.snapshot.path.empty())
    if (const auto found = SnapshotStore(config.snapshot.path, 1).newest([](const std::string&) {})) {
      text = found->state().configuration;
      step = found->state().step;
      is_finished = found->state().is_finished;
    }
  if (text.empty()) return "";
  Config here = config;
  const Config there = config_of_earlier_run(text, "the earlier run");
  adopt_unset(here, there);
  const bool is_other = !differences_of(there, step, here).empty() || here.data.dataset != there.data.dataset;
  return is_finished && is_other ? "" : text;
}

std::optional<StoredSnapshot> snapshot_to_go_on_from(const Config& config) {
  const bool is_restart = restart_count() > 0;
  if (config.snapshot.path.empty() || (config.snapshot.resume == "never" && !is_restart)) return std::nullopt;
  // RunFolder logs the damaged ones.
  auto found = SnapshotStore(config.snapshot.path, config.snapshot.keep).newest([](const std::string&) {});
  return found && (is_restart || !found->state().is_finished) ? std::move(found) : std::nullopt;
}

}  // namespace lockstep
