// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/bytes.h"
#include "data/dataset.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

/// One line of a JSONL file that a model learns: the answer to a prompt or a text (no prompt).
struct Example {
  std::string prompt;
  std::string answer;
  int64_t line = 0;  ///< number of the line, from 1
};

/// Reads lines of a JSONL file. Each line is an object with "prompt" and "answer", or with "text". Blank
/// lines and other keys are ignored. Throws UserError that names `source` and the line. The first is
/// `first_line`.
std::vector<Example> read_examples(std::string_view lines, const std::string& source, int64_t first_line = 1);

/// Examples as ids, one after the other.
struct EncodedExamples {
  std::vector<int32_t> ids;
  /// Two marks per example: the index where its answer begins and the index where the example ends. Without a
  /// prompt the answer begins where the example begins.
  std::vector<int64_t> marks;
};

/// Encodes examples. The end-of-text token follows each example if the tokenizer has one. Throws UserError
/// that names `source` and the line.
EncodedExamples encode_examples(const Tokenizer& tokenizer, const std::vector<Example>& examples,
                                const std::string& source);

/// The marks of consecutive examples, in memory or in the file of their ids.
class Marks {
 public:
  Marks(const std::vector<int64_t>& marks);  // NOLINT(google-explicit-constructor): EncodedExamples::marks
  /// Uses the marks of `examples` examples from byte `begin` on.
  Marks(Bytes bytes, int64_t begin, int64_t examples);

  int64_t examples() const { return examples_; }
  /// Returns the index where the first of these examples begins, and the marks of all.
  std::vector<int64_t> read(int64_t first, int64_t count) const;
  Marks slice(int64_t begin, int64_t end) const;

 private:
  Bytes bytes_;
  int64_t begin_ = 0;
  int64_t examples_ = 0;
  int64_t first_token_ = 0;
};

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

  ExampleBlocks(Tokens tokens, Marks marks, const Options& options);

  int64_t size() const override { return static_cast<int64_t>(blocks_.size()) - 1; }
  SampleField input() const override { return {{options_.block_size}, DType::i32}; }
  SampleField target() const override { return {{options_.block_size}, DType::i32}; }
  void fetch(int64_t index, void* input, void* target) const override;
  std::optional<int64_t> counted_targets(int64_t index) const override;

  /// Returns the number of examples that were longer than a block.
  int64_t cut_examples() const { return cut_; }
  /// Returns the number of examples without a target that counts. They are skipped.
  int64_t empty_examples() const { return empty_; }

 private:
  /// Tokens [begin, end) of an example. Each but the first is a target. A target counts if its index is at
  /// least `counted`.
  struct Piece {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t counted = 0;

    int64_t targets() const { return end - begin - 1; }
    int64_t counted_targets() const { return std::max<int64_t>(0, end - std::max(begin + 1, counted)); }
  };
  /// The beginning of a piece.
  struct Place {
    int64_t example = 0;
    int64_t token = 0;

    // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer in a defaulted comparison
    auto operator<=>(const Place&) const = default;
  };

  /// Calls use(example, all_of_it) for the examples from `first` on, until it returns false.
  template <class Use>
  void visit_examples(int64_t first, Use use) const;
  /// Calls use(piece) for the pieces of an example from `token` on that have a target that counts.
  template <class Use>
  void visit_pieces(const Piece& example, int64_t token, Use use) const;
  /// Calls use(piece) for the pieces of a block.
  template <class Use>
  void visit_block(int64_t index, Use use) const;
  void add(const Place& place, const Piece& piece);

  Tokens tokens_;
  Marks marks_;
  Options options_;
  std::vector<Place> blocks_;             ///< first piece of each block, and the end
  std::vector<int32_t> counted_targets_;  ///< of each block
  int64_t used_ = 0;                      ///< used positions of the block under construction
  int64_t cut_ = 0;
  int64_t empty_ = 0;
};

/// Splits examples: the first floor(train_split * n) are for training, the others for validation. Throws
/// UserError (data.train_split) if a part has no block.
Split<ExampleBlocks> split_examples(const Tokens& tokens, const Marks& marks, double train_split,
                                    const ExampleBlocks::Options& options);

}  // namespace lockstep
