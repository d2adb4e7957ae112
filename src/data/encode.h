// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/thread_pool.h"
#include "data/read_corpus.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

/// Receives the next ids of a text, and the marks of the examples that they are: EncodedExamples::marks.
using TakeIds = std::function<void(std::span<const int32_t> ids, std::span<const int64_t> marks)>;

/// Reads a corpus and calls take() with part after part of its ids, in order. All threads of a pool encode
/// some parts at a time, so that only some MiB of text and ids are in memory. Their number does not affect
/// the result. The end-of-text token follows each of several documents and each example if the tokenizer has
/// one. Returns the hash of the text: CorpusFacts::hash.
uint64_t encode_corpus(const Tokenizer& tokenizer, const Corpus& corpus, ThreadPool& pool,
                       const TakeIds& take);

}  // namespace lockstep
