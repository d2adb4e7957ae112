// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/tokens.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

/// What a model is to learn from one line of a JSONL file: the answer to a prompt, or a text (no prompt).
struct Example {
  std::string prompt;
  std::string answer;
  int64_t line = 0;  ///< from 1
};

/// Whether data.dataset names examples: a file *.jsonl.
bool is_jsonl(std::string_view name);

/// Reads a JSONL file's text: on each line an object with "prompt" and "answer", or with "text"; blank lines
/// and other keys are passed over. Throws UserError that names `source` and the line.
std::vector<Example> read_examples(std::string_view text, const std::string& source);

/// Examples as ids, one after the other.
struct EncodedExamples {
  std::vector<int32_t> ids;
  /// Of each example, where its answer begins (where it begins itself, if there is no prompt) and where it
  /// ends.
  std::vector<int64_t> marks;
};

/// By so many threads, which do not show. The end-of-text token follows each example if the tokenizer has
/// one. Throws UserError that names `source` and the line.
EncodedExamples encode_examples(const Tokenizer& tokenizer, const std::vector<Example>& examples,
                                const std::string& source, int threads);

/// Examples in blocks of equal size for next-token prediction. Targets that do not count, of prompts (unless
/// they are wanted) and behind the examples of a block, are -1. Packed, a block takes examples as long as
/// they fit, in their order, and each attends to those before it in its block; else it has one example alone.
/// An example is cut only if it is longer than a block, into pieces that each fill one but for the last.
class ExampleBlocks : public Dataset {
 public:
  struct Options {
    int64_t block_size = 0;
    int32_t padding = 0;  ///< the input behind the examples of a block
    bool packs = true;
    bool counts_prompts = false;  ///< their targets count too
  };

  /// `marks` are those of EncodedExamples, of a run of examples; the first begins at `first_token`.
  ExampleBlocks(Tokens tokens, std::vector<int64_t> marks, int64_t first_token, const Options& options);

  int64_t size() const override { return static_cast<int64_t>(first_piece_.size()) - 1; }
  SampleField input() const override { return {{options_.block_size}, DType::i32}; }
  SampleField target() const override { return {{options_.block_size}, DType::i32}; }
  void fetch(int64_t index, void* input, void* target) const override;
  int64_t weight(int64_t index) const override;

  /// Examples that were longer than a block.
  int64_t cut_examples() const { return cut_; }
  /// Examples in which no target counts, which are left out.
  int64_t empty_examples() const { return empty_; }

 private:
  /// Tokens [begin, end): each but the first is a target, and counts if it is at `counted` or later.
  struct Piece {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t counted = 0;

    int64_t targets() const { return end - begin - 1; }
    int64_t counted_targets() const { return end - std::max(begin + 1, counted); }
  };

  void add(const Piece& piece);

  Tokens tokens_;
  Options options_;
  std::vector<Piece> pieces_;
  std::vector<int64_t> first_piece_{0};  ///< of each block, and one behind the last
  int64_t used_ = 0;                     ///< positions of the block under construction
  int64_t cut_ = 0;
  int64_t empty_ = 0;
};

/// The first floor(train_split * n) examples to train on, the others to validate. Throws UserError
/// (data.train_split) if a part has no block.
struct ExampleSplit {
  std::shared_ptr<const ExampleBlocks> train;
  std::shared_ptr<const ExampleBlocks> validation;
};
ExampleSplit split_examples(const Tokens& tokens, const std::vector<int64_t>& marks, double train_split,
                            const ExampleBlocks::Options& options);

}  // namespace lockstep
