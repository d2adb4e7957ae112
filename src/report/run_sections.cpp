// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/report/bars.h"
#include "lockstep/report/charts.h"
#include "lockstep/report/history.h"
#include "lockstep/report/page.h"
#include "lockstep/report/sections.h"

namespace lockstep {
namespace {

// These bound the length of a page, for all of its runs together.
constexpr size_t most_rows = 60;
constexpr size_t most_marks = 800;
constexpr size_t most_cause_bytes = 1000;
constexpr size_t most_bars = 40;

/// Returns the number of a fact; 0 if it is none.
double number_of(const std::string& text) {
  constexpr double most = 1e15;
  const double number = number_in<double>(text).value_or(0);
  return number > 0 && number < most ? number : 0;
}

/// Returns the events of a kind, in their order.
std::vector<RunEvent> events_of(const RunFiles& run, const std::string& what) {
  std::vector<RunEvent> found;
  for (const RunEvent& event : run.events)
    if (event.what == what) found.push_back(event);
  return found;
}

/// Returns the marks of events of some kinds. If there are too many, every few of them are left out.
std::vector<ChartMark> marks_of(const RunFiles& run, size_t most) {
  std::vector<ChartMark> marks;
  for (const char* kind : {"snapshot", "start", "stop", "failure", "audit"}) {
    const std::vector<RunEvent> events = events_of(run, kind);
    const size_t stride = 1 + events.size() / std::max<size_t>(1, most / 5);
    for (size_t i = 0; i < events.size(); i += stride)
      marks.push_back(
          {.x = events[i].unix_seconds, .kind = kind, .title = concat(kind, " at step ", events[i].step)});
  }
  return marks;
}

std::string end_text(const RunStart& start, bool is_last) {
  switch (start.how) {
    case RunStart::End::finished:
      return tag("span class=\"good\"", "finished");
    case RunStart::End::stopped:
      return "stopped on request";
    case RunStart::End::failed:
      return tag("span class=\"bad\"", "failed");
    default:
      return is_last ? "no end recorded" : "ended without a record";
  }
}

/// Returns the steps that were computed again, because the next start resumed from an earlier one.
int64_t repeated_steps(const std::vector<RunStart>& starts, size_t index) {
  if (index + 1 == starts.size()) return 0;
  return std::max<int64_t>(0, starts[index].last_step - starts[index + 1].first_step);
}

/// Returns why a start failed: a line, and what else is known below it.
std::string cause_html(size_t number, const RunStart& start) {
  const std::string cause = escaped(start.cause, most_cause_bytes);
  const size_t end = std::min(cause.find('\n'), cause.size());
  const std::string line =
      concat(tag("b class=\"bad\"", concat("Start ", number, " failed")), ": ", cause.substr(0, end));
  if (end == cause.size()) return tag("p", line) + "\n";
  return tag("p", line) +
         tag("details", tag("summary", "What else is known") + tag("pre", cause.substr(end + 1))) + "\n";
}

std::string starts_html(const RunFiles& run, size_t most) {
  const std::vector<RunStart> starts = starts_of(run);
  HtmlTable table{.head = {"", "Began, UTC", "From step", "To step", "Took", "End", "Repeated steps"},
                  .rows = {},
                  .is_stacked = true};
  std::string causes;
  for (size_t i = starts.size() - std::min(most, starts.size()); i < starts.size(); ++i) {
    const RunStart& start = starts[i];
    const double end = start.end > 0 ? start.end : i + 1 == starts.size() ? run.metrics.end : 0;
    const int64_t repeated = repeated_steps(starts, i);
    table.rows.push_back({concat("Start ", i + 1), time_text(start.begin), whole_text(start.first_step),
                          whole_text(start.last_step),
                          end > 0 ? duration_text(std::max(0.0, end - start.begin)) : "",
                          end_text(start, i + 1 == starts.size()), repeated > 0 ? whole_text(repeated) : ""});
    if (!start.cause.empty()) causes += cause_html(i + 1, start);
  }
  const std::string hidden =
      starts.size() > most
          ? tag("p class=\"soft\"", concat("The last ", most, " of ", starts.size(), " starts:"))
          : "";
  return hidden + table.html() + causes;
}

std::string snapshots_html(const RunFiles& run, size_t most) {
  const std::vector<RunEvent> snapshots = events_of(run, "snapshot");
  std::vector<double> seconds;
  std::vector<std::string> problems;
  for (const RunEvent& snapshot : snapshots) {
    const std::string problem = snapshot.fact("problem");
    if (problem.empty())
      seconds.push_back(number_of(snapshot.fact("seconds")));
    else
      problems.push_back(tag("p class=\"bad\"", concat("The snapshot of step ", whole_text(snapshot.step),
                                                       " failed: ", escaped(problem, 400))));
  }
  if (snapshots.empty()) return "";
  std::string html = tag("h3", "Snapshots") + "\n";
  if (!seconds.empty())
    html +=
        tag("p", concat(counted(std::ssize(seconds), "snapshot"), seconds.size() == 1 ? " was" : " were",
                        " written while the training continued, in ", duration_text(median(seconds)),
                        " each in the median and at most ", duration_text(std::ranges::max(seconds)), ".")) +
        "\n";
  if (problems.size() > most)
    problems.erase(problems.begin(), problems.end() - static_cast<std::ptrdiff_t>(most));
  for (const std::string& problem : problems) html += problem + "\n";
  return html;
}

std::string audits_html(const RunFiles& run, size_t most) {
  const std::vector<RunEvent> audits = events_of(run, "audit");
  const auto every = run.settings.find("dist.audit_every");
  if (audits.empty() && (every == run.settings.end() || every->second == "0")) return "";
  std::string html = tag("h3", "Audits") + "\n";
  if (audits.empty())
    return html +
           tag("p", concat("Another rank recomputed a micro-batch every ", escaped(every->second, 20),
                           " steps and found no difference.")) +
           "\n";
  for (size_t i = audits.size() - std::min(most, audits.size()); i < audits.size(); ++i) {
    std::string facts;
    for (const auto& [name, value] : audits[i].facts)
      facts += concat(facts.empty() ? "" : "\n", name, ": ", value);
    html += concat(tag("p", concat("The audit of step ", whole_text(audits[i].step), " found a difference:")),
                   tag("pre", escaped(facts, most_cause_bytes)), "\n");
  }
  return html;
}

}  // namespace

std::string heading_html(size_t runs, const std::string& text) { return tag(runs == 1 ? "h2" : "h3", text); }

std::string history_html(const RunFiles& run, size_t style, size_t runs) {
  if (starts_of(run).empty()) return "";
  std::string html = heading_html(runs, "Starts, failures and snapshots") + "\n";
  Chart chart{.title = "Steps over time",
              .unit = "thin green: snapshots; dashed: starts and stops; thick red: failures",
              .over = ChartX::time,
              .x_begin = starts_of(run).front().begin,
              .lines = {{.name = "step", .style = style, .series = &run.metrics.progress, .has_band = false}},
              .marks = marks_of(run, most_marks / runs),
              .begins_at_zero = true};
  if (chart.has_values()) html += chart.html();
  const size_t rows = std::max<size_t>(3, most_rows / runs);
  return html + starts_html(run, rows) + snapshots_html(run, rows) + audits_html(run, rows);
}

std::string memory_html(const RunFiles& run, size_t runs) {
  std::vector<NamedBar> bars;
  std::string total;
  for (const auto& [label, text] : last_facts(run.events, "memory")) {
    const double bytes = number_of(text);
    if (label == "total")
      total = bytes_text(bytes);
    else if (bytes > 0)
      bars.push_back({.name = shortened(label, 40), .value = bytes, .text = bytes_text(bytes)});
  }
  if (bars.empty()) return "";
  std::ranges::stable_sort(bars, std::greater<>(), &NamedBar::value);
  if (bars.size() > most_bars) bars.resize(most_bars);
  return concat(
      heading_html(runs, "Memory by scope"), "\n", bars_html("Peaks of rank 0 in its last start", bars),
      total.empty() ? ""
                    : tag("p class=\"soft\"",
                          concat("Scopes peak at different times. Together they peaked at ", total, ".")),
      "\n");
}

}  // namespace lockstep
