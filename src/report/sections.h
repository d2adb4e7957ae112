// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/report/run_files.h"

namespace lockstep {

// Sections of a report, as HTML. Each is empty if the runs have nothing for it.

/// The result of a run in a sentence, and its facts.
std::string verdict_html(const RunFiles& run);
/// The results of several runs as a table, with the colours of their lines.
std::string verdicts_html(const std::vector<RunFiles>& runs);
/// What differs between runs.
std::string differences_html(const std::vector<RunFiles>& runs);
/// Charts over the steps, with the lines of all runs.
std::string charts_html(const std::vector<RunFiles>& runs);

/// Returns the heading of a section of a run. On a page of several runs it is below that of its run.
std::string heading_html(size_t runs, const std::string& text);

// `runs` are on the page. They bound its length, and decide the levels of its headings.

/// Starts, failures, snapshots and audits of a run.
std::string history_html(const RunFiles& run, size_t style, size_t runs);
/// The memory of rank 0 by label.
std::string memory_html(const RunFiles& run, size_t runs);
/// The time line of a step: its spans, or the medians of all steps.
std::string step_html(const RunFiles& run, size_t runs);

}  // namespace lockstep
