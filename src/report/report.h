// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/report/run_files.h"

namespace lockstep {

/// Returns a page about runs, of less than 1 MB. The same folders give the same bytes.
std::string report_page(const std::vector<RunFiles>& runs);

}  // namespace lockstep
