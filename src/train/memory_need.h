// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.h"
#include "config/config.h"

namespace lockstep {

/// Something that a training of a GPT keeps in memory, on each rank.
struct MemoryNeed {
  std::string name;    ///< "logits"
  double bytes = 0;    ///< at least
  std::string key;     ///< of the configuration, that it grows with most
  std::string advice;  ///< what to do if it is too much
};

/// The elements of a GPT's matrices and tables, which are nearly all that it has.
double count_matrix_elements(const Config& config, int64_t vocabulary_size);

/// What every rank needs for certain, each a lower bound. `samples`: how many there are to train on, which
/// bound a batch.
std::vector<MemoryNeed> least_memory(const Config& config, int64_t vocabulary_size, int64_t samples);

/// The memory that a rank may have at most.
struct MemoryLimit {
  double bytes = 0;
  std::string owner;  ///< "this machine has 24 GiB for 2 ranks"
};

/// Of the current stream's GPU; else the least of a rank's share of this machine (with its swap), of what its
/// control groups allow and of RLIMIT_AS.
MemoryLimit memory_limit(const World& world);

/// Throws UserError that names the key of the largest need if all together are more than the limit.
void require_memory(const Config& config, const std::vector<MemoryNeed>& needs, const MemoryLimit& limit);

}  // namespace lockstep
