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

/// One line of a JSONL file that a model learns: the answer to a prompt or a text (no prompt).
struct Example {
  std::string prompt;
  std::string answer;
  int64_t line = 0;  ///< number of the line, from 1
};

/// Returns whether data.dataset names examples: a file *.jsonl.
bool is_jsonl(std::string_view name);

/// Reads a JSONL file's text. Each line is an object with "prompt" and "answer", or with "text". Blank lines
/// and other keys are ignored. Throws UserError that names `source` and the line.
std::vector<Example> read_examples(std::string_view text, const std::string& source);

/// Examples as ids, one after the other.
struct EncodedExamples {
  std::vector<int32_t> ids;
  /// Two marks per example: the index where its answer begins and the index where the example ends. Without a
  /// prompt the answer begins where the example begins.
  std::vector<int64_t> marks;
};

/// Encodes examples by `threads` threads. Their number does not affect the result. The end-of-text token
/// follows each example if the tokenizer has one. Throws UserError that names `source` and the line.
EncodedExamples encode_examples(const Tokenizer& tokenizer, const std::vector<Example>& examples,
                                const std::string& source, int threads);

/// Examples in blocks of equal size for next-token prediction. Targets that do not count are -1. These are
/// the targets of prompts (unless they are wanted) and those after the last example of a block. A packed
/// block takes examples in their order while they fit. Each example attends to those before it in the block.
/// An unpacked block has one example. Only an example longer than a block is cut, into pieces that each fill
/// a block except the last.
class ExampleBlocks : public Dataset {
 public:
  struct Options {
    int64_t block_size = 0;
    int32_t padding = 0;  ///< input after the last example of a block
    bool packs = true;
    bool counts_prompts = false;  ///< the targets in prompts count too
  };

  /// `marks` are EncodedExamples::marks of consecutive examples; the first example begins at `first_token`.
  ExampleBlocks(Tokens tokens, std::vector<int64_t> marks, int64_t first_token, const Options& options);

  int64_t size() const override { return static_cast<int64_t>(first_piece_.size()) - 1; }
  SampleField input() const override { return {{options_.block_size}, DType::i32}; }
  SampleField target() const override { return {{options_.block_size}, DType::i32}; }
  void fetch(int64_t index, void* input, void* target) const override;
  int64_t weight(int64_t index) const override;

  /// Returns the number of examples that were longer than a block.
  int64_t cut_examples() const { return cut_; }
  /// Returns the number of examples without a target that counts. They are skipped.
  int64_t empty_examples() const { return empty_; }

 private:
  /// Tokens [begin, end). Each but the first is a target. A target counts if its index is at least `counted`.
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
  std::vector<int64_t> first_piece_{0};  ///< first piece of each block and the number of pieces at the end
  int64_t used_ = 0;                     ///< used positions of the block under construction
  int64_t cut_ = 0;
  int64_t empty_ = 0;
};

/// The blocks for training and for validation.
struct ExampleSplit {
  std::shared_ptr<const ExampleBlocks> train;
  std::shared_ptr<const ExampleBlocks> validation;
};
/// Splits examples: the first floor(train_split * n) are for training, the others for validation. Throws
/// UserError (data.train_split) if a part has no block.
ExampleSplit split_examples(const Tokens& tokens, const std::vector<int64_t>& marks, double train_split,
                            const ExampleBlocks::Options& options);

}  // namespace lockstep
