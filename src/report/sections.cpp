// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/sections.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/report/charts.h"
#include "lockstep/report/comparison.h"
#include "lockstep/report/history.h"
#include "lockstep/report/page.h"

namespace lockstep {
namespace {

constexpr size_t most_key_bytes = 100;
constexpr size_t most_fact_bytes = 20'000;
// Limits of a table of differences: the bytes of all values of a row together, and the rows.
constexpr size_t most_value_bytes = 1000;
constexpr size_t most_differences = 80;
constexpr const char* no_value = "\xE2\x80\x93";  // an en dash

/// Returns what became of a run in a word, or in a few.
std::string state_text(RunState state) {
  switch (state) {
    case RunState::finished:
      return "Finished";
    case RunState::stopped_early:
      return "Stopped early";
    case RunState::stopped:
      return "Stopped on request";
    case RunState::failed:
      return "Failed";
    default:
      return "No end recorded";
  }
}

const char* state_class(RunState state) {
  return state == RunState::failed                               ? "bad"
         : state == RunState::open || state == RunState::stopped ? "soft"
                                                                 : "good";
}

std::string steps_text(int64_t steps) { return concat(whole_text(steps), steps == 1 ? " step" : " steps"); }

/// Returns what happened to a run as a sentence: after its state, in HTML.
std::string happened(const RunFiles& run, RunState state) {
  const RunMetrics& metrics = run.metrics;
  const std::string time = duration_text(seconds_of(run));
  const std::string steps = steps_text(metrics.steps);
  if (metrics.steps == 0) return "no step has ended yet";
  switch (state) {
    case RunState::finished:
      return concat(steps, " in ", time);
    case RunState::stopped_early:
      return concat("after ", steps, " in ", time, ", because ", counted(metrics.patience, "validation"),
                    " in a row had no better loss");
    case RunState::stopped:
      return concat("after ", steps, " in ", time, ". The same command resumes it");
    case RunState::failed:
      return concat("after ", steps, " in ", time);
    default:
      return concat("the last line of metrics.jsonl is of step ", whole_text(metrics.steps), ", ",
                    time_text(metrics.end), " UTC. The run may still work, or it was killed");
  }
}

/// Returns a fact as HTML, for a list of them. A long value gets a smaller font and a line of its own.
std::string fact(const std::string& name, const std::string& value, size_t characters = 0) {
  if (value.empty()) return "";
  const std::string place = characters > 60 ? "div class=\"wide\"" : "div";
  return tag(place, tag("dt", escaped(name)) + tag(characters > 24 ? "dd class=\"long\"" : "dd", value)) +
         "\n";
}

/// Returns the facts of the last start. The long ones come last.
std::string start_facts(const RunFiles& run) {
  std::string short_ones, long_ones;
  for (const auto& [name, value] : last_facts(run.events, "start")) {
    if (name.size() > most_key_bytes || short_ones.size() + long_ones.size() > most_fact_bytes) continue;
    const bool is_long = value.size() > 24;
    (is_long ? long_ones : short_ones) +=
        fact(upper_case(name.substr(0, 1)) + name.substr(1), escaped(value, 400), value.size());
  }
  return short_ones + long_ones;
}

std::string hash_html(const std::string& hash) {
  return hash.empty() ? "" : tag("span class=\"hash\"", escaped(hash, 32));
}

std::string validation_text(const RunMetrics& metrics) {
  if (!metrics.best_validation) return "";
  return concat(short_number(*metrics.best_validation),
                tag("span class=\"soft\"", concat(" at step ", whole_text(metrics.best_step))));
}

/// The groups of a table of differences.
constexpr std::array<const char*, static_cast<size_t>(FactKind::count)> group_names = {
    "Semantic keys, which decide the bits", "Data", "Program and machine", "Other keys"};

std::string cell(const std::string& value, size_t most_bytes) {
  return value.empty() ? no_value : escaped(value, most_bytes);
}

/// Returns a note if runs of different settings or machines end with the same parameters.
std::string same_parameters(const std::vector<RunFiles>& runs) {
  std::set<std::string> hashes;
  for (const RunFiles& run : runs) hashes.insert(run.metrics.parameters_hash);
  if (hashes.size() != 1 || hashes.begin()->empty()) return "";
  return tag("p class=\"verdict good\"", "All runs end with the same parameters, bit by bit.") + "\n";
}

using SeriesOf = std::function<const Series&(const RunMetrics&)>;

/// Returns the chart `chart` with a line for each run; empty if none has values.
std::string chart_of(const std::vector<RunFiles>& runs, Chart chart, const SeriesOf& series,
                     bool has_dots = false) {
  for (const RunFiles& run : runs)
    chart.x_most = std::max(chart.x_most, static_cast<double>(run.metrics.steps));
  for (size_t i = 0; i < runs.size(); ++i)
    chart.lines.push_back({.name = runs[i].name,
                           .style = i,
                           .series = &series(runs[i].metrics),
                           .has_dots = has_dots && series(runs[i].metrics).bins().size() <= 60});
  return chart.has_values() ? chart.html() : "";
}

}  // namespace

std::string verdict_html(const RunFiles& run) {
  const RunState state = state_of(run);
  const RunMetrics& metrics = run.metrics;
  const bool has_steps = metrics.steps > 0;
  const std::string verdict = concat(tag(concat("b class=\"", state_class(state), "\""), state_text(state)),
                                     ": ", happened(run, state), ".");
  const size_t restarts = std::max<size_t>(starts_of(run).size(), 1) - 1;
  std::string facts = fact("Final loss", has_steps ? short_number(metrics.last_loss) : "");
  facts += fact("Best validation loss", validation_text(metrics));
  facts += fact("Tokens per second, median",
                metrics.median_tokens_per_second > 0 ? short_number(metrics.median_tokens_per_second) : "");
  facts += fact("Time of a step, median", has_steps ? duration_text(metrics.median_step_ms / 1000) : "");
  facts += fact("Restarts", std::to_string(restarts));
  facts += fact("Parameters", hash_html(metrics.parameters_hash));
  facts += fact("Began", has_steps ? time_text(metrics.begin).substr(0, 16) + " UTC" : "");
  return tag("p class=\"verdict\"", verdict) + "\n" + tag("dl", "\n" + facts + start_facts(run)) + "\n";
}

std::string verdicts_html(const std::vector<RunFiles>& runs) {
  HtmlTable table{
      .head = {"Run", "State", "Steps", "Final loss", "Best validation", "Tokens/s", "Time", "Parameters"},
      .rows = {},
      .has_numbers = true,
      .is_stacked = true};
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunMetrics& metrics = runs[i].metrics;
    const RunState state = state_of(runs[i]);
    table.rows.push_back({line_sample(i) + " " + escaped(runs[i].name),
                          tag(concat("span class=\"", state_class(state), "\""), state_text(state)),
                          whole_text(metrics.steps),
                          metrics.steps > 0 ? short_number(metrics.last_loss) : no_value,
                          metrics.best_validation ? short_number(*metrics.best_validation) : no_value,
                          short_number(metrics.median_tokens_per_second), duration_text(seconds_of(runs[i])),
                          metrics.parameters_hash.empty() ? no_value : hash_html(metrics.parameters_hash)});
  }
  return same_parameters(runs) + table.html();
}

std::string differences_html(const std::vector<RunFiles>& runs) {
  const std::vector<Difference> differences = differences_between(runs);
  std::string html = tag("h2", "What differs") + "\n";
  for (const RunFiles& run : runs)
    if (run.settings.empty())
      html += tag("p class=\"soft\"",
                  concat("The settings of ", escaped(run.name), " are not known: it has no config.ini.")) +
              "\n";
  if (differences.empty())
    return html + tag("p", "Nothing: keys, data, build and scope of bits are the same.") + "\n";
  const bool decides_bits =
      differences.front().kind == FactKind::semantic || differences.front().kind == FactKind::data;
  if (!decides_bits)
    html +=
        tag("p", "No semantic key and no data differ, so equal bits are expected in a scope of bits.") + "\n";
  HtmlTable table{.head = {""}, .rows = {}, .is_stacked = true, .samples = {""}};
  for (size_t i = 0; i < runs.size(); ++i) {
    table.head.push_back(escaped(runs[i].name));
    table.samples.push_back(line_sample(i) + " ");
  }
  std::optional<FactKind> kind;
  for (const Difference& difference : differences) {
    if (table.rows.size() >= most_differences) break;
    if (kind != difference.kind) table.rows.push_back({group_names[static_cast<size_t>(difference.kind)]});
    kind = difference.kind;
    std::vector<std::string> row = {escaped(difference.name, most_key_bytes)};
    for (const std::string& value : difference.values)
      row.push_back(cell(value, most_value_bytes / runs.size()));
    table.rows.push_back(std::move(row));
  }
  const std::string rest =
      table.rows.size() < most_differences ? "" : tag("p class=\"soft\"", "Further keys differ, too.");
  return html + table.html() + rest;
}

std::string charts_html(const std::vector<RunFiles>& runs) {
  std::string charts = chart_of(runs, {.title = "Loss", .is_logarithmic_if_wide = true, .is_tall = true},
                                [](const RunMetrics& run) -> const Series& { return run.loss; });
  charts += chart_of(
      runs, {.title = "Validation loss", .is_logarithmic_if_wide = true},
      [](const RunMetrics& run) -> const Series& { return run.validation; }, true);
  charts += chart_of(runs, {.title = "Learning rate", .begins_at_zero = true},
                     [](const RunMetrics& run) -> const Series& { return run.learning_rate; });
  charts +=
      chart_of(runs, {.title = "Gradient norm", .unit = "before clipping", .is_logarithmic_if_wide = true},
               [](const RunMetrics& run) -> const Series& { return run.gradient_norm; });
  charts += chart_of(runs, {.title = "Speed", .unit = "tokens per second", .begins_at_zero = true},
                     [](const RunMetrics& run) -> const Series& { return run.tokens_per_second; });
  charts += chart_of(runs, {.title = "Memory of rank 0", .unit = "MiB", .begins_at_zero = true},
                     [](const RunMetrics& run) -> const Series& { return run.memory_mib; });
  charts += chart_of(runs, {.title = "Loss scale", .is_logarithmic_if_wide = true},
                     [](const RunMetrics& run) -> const Series& { return run.loss_scale; });
  if (charts.empty()) return "";
  std::vector<ChartLine> lines;
  for (size_t i = 0; i < runs.size(); ++i) lines.push_back({.name = runs[i].name, .style = i});
  const bool has_bands =
      std::ranges::any_of(runs, [](const RunFiles& run) { return run.metrics.loss.is_condensed(); });
  return concat(tag("h2", "Steps"), "\n", runs.size() > 1 ? chart_key(lines) : "",
                has_bands ? tag("p class=\"soft\"",
                                "A line is the mean of neighbouring steps, and its shade is their range.")
                          : "",
                "\n", tag("div class=\"charts\"", "\n" + charts), "\n");
}

}  // namespace lockstep
