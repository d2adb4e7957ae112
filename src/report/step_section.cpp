// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <map>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/report/bars.h"
#include "lockstep/report/page.h"
#include "lockstep/report/sections.h"

namespace lockstep {
namespace {

// These bound the length of a page, for all of its runs together.
constexpr size_t most_ranks = 8;
constexpr size_t most_blocks = 320;  ///< of each row
constexpr size_t most_totals = 30;

/// Returns the class of a block's colour.
std::string kind_of(const TracedSpan& span) {
  static const std::map<std::string, std::string> kinds = {{"forward", "k1"},
                                                           {"backward", "k2"},
                                                           {"update", "k3"},
                                                           {"bucket", "k4"},
                                                           {"exchange of the norm", "k5"},
                                                           {"gather", "k6"},
                                                           {"load", "k8"},
                                                           {"copy", "k3"},
                                                           {"write", "k6"},
                                                           {"validation", "k8"}};
  const auto known = kinds.find(span.name);
  return known == kinds.end() ? "k7" : known->second;
}

/// Returns at most `most` spans of a row in their order. The shortest ones are left out.
std::vector<TracedSpan> longest(std::vector<TracedSpan> spans, size_t most) {
  if (spans.size() <= most) return spans;
  std::vector<double> lengths;
  for (const TracedSpan& span : spans) lengths.push_back(span.end - span.begin);
  std::ranges::nth_element(lengths, lengths.begin() + static_cast<std::ptrdiff_t>(most), std::greater<>());
  std::erase_if(spans,
                [least = lengths[most]](const TracedSpan& span) { return span.end - span.begin <= least; });
  return spans;
}

std::vector<TimelineRow> rows_of(const RankSpans& trace, const TracedStep& step, bool names_rank,
                                 size_t most) {
  static const std::vector<std::pair<std::string, std::string>> names = {
      {"step", "compute"}, {"buckets", "buckets"}, {"data", "data"}, {"snapshots", "snapshots"}};
  std::vector<TimelineRow> rows;
  for (const auto& [row, name] : names) {
    std::vector<TracedSpan> spans = spans_within(trace, step);
    std::erase_if(spans, [&row = row](const TracedSpan& span) { return span.row != row; });
    TimelineRow shown{.name = (names_rank ? concat("rank ", trace.rank, ", ") : "") + name, .blocks = {}};
    for (const TracedSpan& span : longest(std::move(spans), most))
      shown.blocks.push_back(
          {.name = span.name == "bucket" && span.number >= 0 ? concat("bucket ", span.number) : span.name,
           .kind = kind_of(span),
           .begin = span.begin,
           .end = span.end});
    if (!shown.blocks.empty()) rows.push_back(std::move(shown));
  }
  return rows;
}

/// Returns how often a step does what, and how long.
std::string totals_html(const RankSpans& trace, const TracedStep& step) {
  struct Total {
    std::string name, kind;
    int64_t count = 0;
    double milliseconds = 0;
  };
  if (!(step.end > step.begin)) return "";
  std::vector<Total> totals;
  for (const TracedSpan& span : spans_within(trace, step)) {
    const std::string name = span.row == "step" ? span.name : concat(span.row, ": ", span.name);
    auto known = std::ranges::find(totals, name, &Total::name);
    if (known == totals.end()) known = totals.insert(totals.end(), {name, kind_of(span)});
    ++known->count;
    known->milliseconds += span.end - span.begin;
  }
  HtmlTable table{.head = {concat("Rank ", trace.rank), "Times", "Duration", "Of the step"},
                  .rows = {},
                  .has_numbers = true};
  if (totals.size() > most_totals) totals.resize(most_totals);
  for (const Total& total : totals)
    table.rows.push_back(
        {concat("<svg class=\"swatch\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"", total.kind,
                "\" width=\"10\" height=\"10\"/></svg> ", escaped(total.name, 60)),
         std::to_string(total.count), duration_text(total.milliseconds / 1000),
         concat(fixed_text(100 * total.milliseconds / (step.end - step.begin), 1), " %")});
  return table.html();
}

/// Returns the medians of metrics.jsonl as a time line, for a run without a trace.
std::string medians_html(const RunMetrics& metrics, size_t runs) {
  const double wait = metrics.median_wait_ms, exposed = metrics.median_exposed_ms,
               all = metrics.median_step_ms;
  if (!(all > 0)) return "";
  const double compute = std::max(0.0, all - wait - exposed);
  return concat(
      heading_html(runs, "One step"), "\n",
      timeline_html(concat("A step takes ", duration_text(all / 1000), " in the median"), all,
                    {{.name = "rank 0",
                      .blocks = {{"wait for data", "k8", 0, wait},
                                 {"compute", "k1", wait, wait + compute},
                                 {"wait for ranks", "k4", wait + compute, all}}}}),
      tag("p", concat("Waiting for data takes ", duration_text(wait / 1000), " and waiting for other ranks ",
                      duration_text(exposed / 1000), ". With ", tag("code", "log.trace=steps"),
                      " a run records the spans of some steps, and this figure shows one of them.")),
      "\n");
}

}  // namespace

std::string step_html(const RunFiles& run, size_t runs) {
  const auto first = run.traces.empty() ? std::nullopt : median_step(run.traces.front());
  if (!first) return medians_html(run.metrics, runs);
  const size_t ranks = std::min(run.traces.size(), std::max<size_t>(1, most_ranks / runs));
  std::vector<TimelineRow> rows;
  double milliseconds = 0;
  for (size_t i = 0; i < ranks; ++i) {
    const RankSpans& trace = run.traces[i];
    const auto step = step_of(trace, first->number);
    if (!step) continue;
    milliseconds = std::max(milliseconds, step->end - step->begin);
    for (TimelineRow& row : rows_of(trace, *step, ranks > 1, most_blocks / (runs * ranks)))
      rows.push_back(std::move(row));
  }
  if (!(milliseconds > 0)) return medians_html(run.metrics, runs);
  return concat(
      heading_html(runs, "One step"), "\n",
      timeline_html(concat("Step ", whole_text(first->number), ", the median of those that were recorded"),
                    milliseconds, rows),
      totals_html(run.traces.front(), *first), "\n");
}

}  // namespace lockstep
