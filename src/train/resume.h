// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dist/world.h"
#include "nn/optimizer.h"
#include "train/config.h"
#include "train/snapshot.h"

namespace lockstep {

/// The newest valid snapshot under snapshot.path, read by rank 0 and given to all, or nothing if the run
/// starts from scratch. Throws UserError by key: where snapshot.resume forbids what was found, where the
/// snapshot is of a run with other semantics, or where `artifacts` (the data) differ.
std::optional<Snapshot> find_snapshot_to_resume(const Config& config, const World& world,
                                                const std::map<std::string, std::string>& artifacts);

/// Copies a snapshot's values into a model and its optimizer. Throws UserError naming a tensor that is
/// missing or has another shape.
void restore(const Snapshot& snapshot, const std::vector<NamedTensor>& parameters, Optimizer& optimizer);

/// Copies tensors by name. Throws UserError naming one that is missing or has another shape; `what` says of
/// what.
void restore_tensors(const std::vector<NamedTensor>& saved, const std::vector<NamedTensor>& targets,
                     const std::string& what);

}  // namespace lockstep
