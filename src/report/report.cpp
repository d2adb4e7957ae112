// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/report.h"

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/report/page.h"
#include "lockstep/report/sections.h"

namespace lockstep {
namespace {

std::string eyebrow(const std::string& text) { return tag("p class=\"eyebrow\"", escaped(text)) + "\n"; }

std::string page_of_one(const RunFiles& run) {
  const std::string body =
      concat(eyebrow("Lockstep training run"), tag("h1", escaped(run.name)), "\n", verdict_html(run),
             charts_html({run}), history_html(run, 0, 1), step_html(run, 1), memory_html(run, 1));
  return page(run.name + " - Lockstep report", body + tag("footer", tag("code", escaped(run.folder))) + "\n");
}

std::string page_of_several(const std::vector<RunFiles>& runs) {
  std::string body =
      concat(eyebrow("Lockstep training runs"), tag("h1", concat(runs.size(), " runs compared")), "\n",
             verdicts_html(runs), differences_html(runs), charts_html(runs));
  for (size_t i = 0; i < runs.size(); ++i)
    body += concat(tag("h2", escaped(runs[i].name)), "\n", history_html(runs[i], i, runs.size()),
                   step_html(runs[i], runs.size()), memory_html(runs[i], runs.size()));
  return page(concat(runs.size(), " runs - Lockstep report"), body);
}

}  // namespace

std::string report_page(const std::vector<RunFiles>& runs) {
  return runs.size() == 1 ? page_of_one(runs.front()) : page_of_several(runs);
}

}  // namespace lockstep
