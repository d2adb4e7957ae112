// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/thread_pool.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

/// Computes tokenizer.encode(text, source) with all threads of a pool. Cuts the text at safe_cut() into parts
/// of about `part_bytes`. Ids and errors equal those of a single thread.
std::vector<int32_t> encode_in_parallel(const Tokenizer& tokenizer, std::string_view text,
                                        std::string_view source, ThreadPool& pool,
                                        size_t part_bytes = size_t{1} << 20);

}  // namespace lockstep
