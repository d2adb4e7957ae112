// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/bars.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/report/axis.h"
#include "lockstep/report/page.h"

namespace lockstep {
namespace {

/// A narrower block has no room for its name.
constexpr double least_named_share = 0.06;
constexpr size_t most_label_bytes = 60;

std::string bar(const NamedBar& bar, double most) {
  const double share = most > 0 ? bar.value / most : 0;
  const std::string rectangle = concat(
      "<svg viewBox=\"0 0 100 10\" width=\"100%\" height=\"100%\" preserveAspectRatio=\"none\" "
      "aria-hidden=\"true\"><rect class=\"",
      bar.kind, "\" width=\"", fixed_text(100 * share, 2), "\" height=\"10\"/></svg>");
  return tag("div class=\"bar\"", tag("span class=\"name\"", escaped(bar.name, most_label_bytes)) +
                                      tag("span class=\"track\"", rectangle) +
                                      tag("span class=\"value\"", escaped(bar.text))) +
         "\n";
}

std::string block(const TimelineBlock& block, double milliseconds) {
  const double share = (block.end - block.begin) / milliseconds;
  const std::string title = concat(block.name, ": ", duration_text((block.end - block.begin) / 1000));
  return tag(
      concat("span class=\"block ", block.kind, "\" style=\"left:", percent_text(block.begin / milliseconds),
             ";width:", percent_text(share), "\" title=\"", escaped(title, most_label_bytes), "\""),
      share >= least_named_share ? escaped(block.name, most_label_bytes) : "");
}

}  // namespace

std::string bars_html(const std::string& title, const std::vector<NamedBar>& bars) {
  double most = 0;
  for (const NamedBar& one : bars) most = std::max(most, one.value);
  std::string content = tag("figcaption", tag("b", escaped(title))) + "\n";
  for (const NamedBar& one : bars) content += bar(one, most);
  return tag("figure class=\"bars\"", content) + "\n";
}

std::string timeline_html(const std::string& title, double milliseconds,
                          const std::vector<TimelineRow>& rows) {
  std::string content = tag("figcaption", tag("b", escaped(title))) + "\n";
  for (const TimelineRow& row : rows) {
    std::string blocks;
    for (const TimelineBlock& one : row.blocks) blocks += block(one, milliseconds);
    content += tag("div class=\"row\"",
                   tag("span class=\"name\"", escaped(row.name)) + tag("div class=\"lane\"", blocks)) +
               "\n";
  }
  const Axis axis(0, milliseconds, false, 4);
  std::string ticks;
  for (const double tick : axis.ticks())
    if (tick <= milliseconds)
      ticks += tag(concat("span class=\"x", tick > 0.9 * milliseconds ? " last" : "",
                          "\" style=\"left:", percent_text(tick / milliseconds), "\""),
                   tick == 0 ? "0" : duration_text(tick / 1000));
  content += tag("div class=\"row\"", "<span class=\"name\"></span>" + tag("div class=\"scale\"", ticks));
  return tag("figure class=\"timeline\"", content) + "\n";
}

}  // namespace lockstep
