// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/thread_pool.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

/// tokenizer.encode(text, source) by all threads of a pool: parts of about `part_bytes` that are cut where
/// cutting cannot be seen. The ids and the errors are those of one thread.
std::vector<int32_t> encode_in_parallel(const Tokenizer& tokenizer, std::string_view text,
                                        std::string_view source, ThreadPool& pool,
                                        size_t part_bytes = size_t{1} << 20);

}  // namespace lockstep
