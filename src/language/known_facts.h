// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include "lockstep/data/read_corpus.h"

namespace lockstep {

/// Smallest text that the cache folder has files of. Reading a smaller one is faster than finding them.
constexpr int64_t least_cached_bytes = int64_t{1} << 20;

/// Returns measure(corpus). A large corpus is read only once: a record in the cache folder has its facts
/// until a file of it changes, by size, times or inode. `now` is for tests. A file that has changed within 2
/// s may change again without another time, so its facts are not recorded.
CorpusFacts facts_of(const Corpus& corpus,
                     std::chrono::system_clock::time_point now = std::chrono::system_clock::now());

/// Removes the record of a corpus whose facts have turned out to be wrong.
void forget_facts(const Corpus& corpus);

}  // namespace lockstep
