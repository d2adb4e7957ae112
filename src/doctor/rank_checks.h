// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"
#include "doctor/finding.h"
#include "train/rank_table.h"

namespace lockstep {

/// Who runs where.
Finding judge_places(const std::vector<RankPlace>& ranks);
/// Ranks give the same bits if their programs were built for the same instructions, and are even if their
/// processors are alike.
Finding judge_processors(const std::vector<RankPlace>& ranks,
                         const std::vector<std::string>& instruction_sets);
/// `ahead_seconds`: by how much each rank's clock is ahead of rank 0's.
Finding judge_clocks(const std::vector<RankPlace>& ranks, const std::vector<double>& ahead_seconds);

/// What only ranks together can find out: places, processors, clocks, and whether every host reaches every
/// other at each of its addresses. All ranks call it; rank 0 gets the findings.
std::vector<Finding> check_together(const World& world);

/// Whether no rank before this one runs on its host. All ranks call it.
bool is_first_of_host(const World& world);

/// All ranks' findings on rank 0, each with its host's name where there are several. All ranks call it.
std::vector<Finding> gather_findings(const World& world, const std::vector<Finding>& mine);

}  // namespace lockstep
