// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/run_files.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/text.h"
#include "lockstep/job/keys.h"
#include "lockstep/json/json_field.h"
#include "lockstep/snapshot/found_run.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t most_runs = 12;
constexpr size_t most_line_bytes = 65536;
constexpr size_t most_name_bytes = 80;
/// Most bins of all runs of a chart together. Each is up to 40 bytes of the page.
constexpr size_t most_bins_of_chart = 1600;
constexpr size_t most_bins_of_series = 400;

// A damaged file may have any numbers. Those beyond these are not shown.
constexpr double most_value = 1e30;
constexpr int64_t most_step = 1'000'000'000'000'000;
constexpr double most_time = 1e11;

bool is_time(double seconds) { return seconds > 0 && seconds < most_time; }

/// Returns the number of a member; NaN if there is none. A loss that is not finite is null.
double number(const Json& line, const char* key) {
  const auto found = line.find(key);
  const double value = found != line.end() && found->is_number() ? found->get<double>() : most_value;
  return std::abs(value) < most_value ? value : std::numeric_limits<double>::quiet_NaN();
}

/// Adds lines to metrics, and collects what the medians need.
class MetricsReader {
 public:
  explicit MetricsReader(size_t most_bins) : metrics_(most_bins) {}

  void add(const Json& line) {
    if (const auto step = line.find("step"); step != line.end() && step->is_number_integer())
      add_step(line, step->get<int64_t>());
    if (line.value("done", Json()) != true) return;
    metrics_.is_complete = true;
    if (const auto hash = line.find("parameters_hash"); hash != line.end() && hash->is_string())
      metrics_.parameters_hash = hash->get<std::string>();
    if (const auto patience = line.find("patience"); patience != line.end() && patience->is_number_integer())
      metrics_.patience = patience->get<int64_t>();
  }

  RunMetrics finish() {
    metrics_.median_tokens_per_second = median(std::move(tokens_per_second_));
    metrics_.median_step_ms = median(std::move(step_ms_));
    metrics_.median_exposed_ms = median(std::move(exposed_ms_));
    metrics_.median_wait_ms = median(std::move(wait_ms_));
    return std::move(metrics_);
  }

 private:
  void add_step(const Json& line, int64_t step) {
    if (step < 0 || step > most_step) return;
    const auto x = static_cast<double>(step);
    // A run that was given more steps after its end has a line of its first end.
    metrics_.is_complete = false;
    metrics_.steps = step;
    metrics_.last_loss = number(line, "loss");
    metrics_.loss.add(x, metrics_.last_loss);
    metrics_.learning_rate.add(x, number(line, "lr"));
    metrics_.gradient_norm.add(x, number(line, "grad_norm"));
    metrics_.tokens_per_second.add(x, number(line, "tokens_per_s"));
    metrics_.memory_mib.add(x, number(line, "memory_mib"));
    if (line.contains("loss_scale")) metrics_.loss_scale.add(x, number(line, "loss_scale"));
    if (line.contains("val_loss")) add_validation(step, number(line, "val_loss"));
    tokens_per_second_.push_back(number(line, "tokens_per_s"));
    step_ms_.push_back(number(line, "step_ms"));
    exposed_ms_.push_back(number(line, "exposed_comm_ms"));
    wait_ms_.push_back(number(line, "data_wait_ms"));
    const double time = number(line, "time");
    if (!is_time(time)) return;
    const double seconds = number(line, "step_ms") / 1000;
    if (metrics_.begin == 0) metrics_.begin = seconds > 0 && seconds < time ? time - seconds : time;
    metrics_.end = time;
    metrics_.progress.add(time, x);
  }

  void add_validation(int64_t step, double loss) {
    metrics_.validation.add(static_cast<double>(step), loss);
    metrics_.last_validation = loss;
    if (metrics_.best_validation && !(loss < *metrics_.best_validation)) return;
    metrics_.best_validation = loss;
    metrics_.best_step = step;
  }

  RunMetrics metrics_;
  std::vector<double> tokens_per_second_, step_ms_, exposed_ms_, wait_ms_;
};

std::map<std::string, std::string> read_settings(const std::string& path) {
  std::map<std::string, std::string> settings;
  try {
    for (const Setting& setting : parse_ini(read_file(path).value_or(""), path))
      settings[setting.key] = setting.value;
  } catch (const UserError&) {
    // A report of a run with a damaged config.ini shows the rest.
  }
  return settings;
}

/// Returns the last `parts` parts of a path: "sweep/lr1" with 2.
std::string last_parts(const fs::path& path, size_t parts) {
  const std::vector<fs::path> all(path.begin(), path.end());
  fs::path last;
  for (size_t i = all.size() - std::min(parts, all.size()); i < all.size(); ++i) last /= all[i];
  return last.string();
}

/// Names each run by the fewest last parts of its folder that tell all runs apart.
void name_runs(std::vector<RunFiles>& runs) {
  for (size_t parts = 1; parts <= 16; ++parts) {
    std::set<std::string> names;
    for (RunFiles& run : runs) {
      fs::path path = fs::absolute(run.folder).lexically_normal();
      if (!path.has_filename()) path = path.parent_path();
      names.insert(run.name = shortened(last_parts(path, parts), most_name_bytes));
    }
    if (names.size() == runs.size()) return;
  }
}

std::vector<RunEvent> read_valid_events(const std::string& folder) {
  std::vector<RunEvent> events = read_events(folder);
  std::erase_if(events,
                [](const RunEvent& event) { return !is_time(event.unix_seconds) || event.step > most_step; });
  return events;
}

RunFiles read_run(const std::string& folder, size_t most_bins) {
  require(fs::is_directory(folder), "RUN = ", folder, " is not a folder; name the log.dir of a run");
  const bool is_run = fs::exists(folder + "/metrics.jsonl") || fs::exists(folder + "/" + events_file);
  require(is_run, "RUN = ", folder, " is not the folder of a run: it has no metrics.jsonl; name a log.dir");
  RunFiles run{.folder = folder,
               .name = {},
               .settings = read_settings(folder + "/config.ini"),
               .data = hashes_in(read_file(folder + "/data.hash").value_or("")),
               .metrics = read_metrics(folder + "/metrics.jsonl", most_bins),
               .events = read_valid_events(folder),
               .traces = read_traces(folder)};
  require(run.metrics.steps > 0 || !run.events.empty(), "RUN = ", folder,
          " has nothing to report: its metrics.jsonl has no step, and it has no ", events_file);
  return run;
}

}  // namespace

RunMetrics::RunMetrics(size_t most_bins)
    : loss(most_bins),
      validation(most_bins),
      learning_rate(most_bins),
      gradient_norm(most_bins),
      tokens_per_second(most_bins),
      memory_mib(most_bins),
      loss_scale(most_bins),
      progress(most_bins) {}

size_t bins_for(size_t runs) { return std::min(most_bins_of_series, most_bins_of_chart / runs); }

RunMetrics read_metrics(const std::string& path, size_t most_bins) {
  MetricsReader reader(most_bins);
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    try {
      if (const auto json = parse_json<Json>(line, "a line", most_line_bytes); json.is_object())
        reader.add(json);
    } catch (const UserError&) {
      // The line is torn, or the run writes it now.
    }
  }
  return reader.finish();
}

std::vector<RunFiles> read_runs(const std::vector<std::string>& folders) {
  require(folders.size() <= most_runs, "a report shows at most ", most_runs, " runs, but ", folders.size(),
          " are named; name fewer");
  std::vector<RunFiles> runs;
  std::set<fs::path> known;
  for (const std::string& folder : folders) {
    runs.push_back(read_run(folder, bins_for(folders.size())));
    require(known.insert(fs::canonical(folder)).second, "RUN = ", folder, " is named twice; name it once");
  }
  name_runs(runs);
  return runs;
}

}  // namespace lockstep
