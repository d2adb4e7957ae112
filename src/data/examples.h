// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/bytes.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/example_rows.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

struct ChatTemplate;

/// Examples as ids, one after the other.
struct EncodedExamples {
  std::vector<int32_t> ids;
  /// Two marks per answer: the index where it begins and the index where it ends. Without a prompt it begins
  /// where the example begins. If the example continues behind it, the end is ~index. An example ends with
  /// its last answer, which may be empty.
  std::vector<int64_t> marks;
};

/// Encodes examples. The end-of-text token follows each example but a conversation, if the tokenizer has one.
/// Conversations need `chat`. Throws UserError that names `source` and the line.
EncodedExamples encode_examples(const Tokenizer& tokenizer, const std::vector<Example>& examples,
                                const std::string& source, const ChatTemplate* chat = nullptr);

/// The marks of the answers of consecutive examples, in memory or in the file of their ids.
class Marks {
 public:
  /// The end of the tokens before an answer, the end of the answer, and whether its example continues.
  struct Answer {
    int64_t begin = 0;
    int64_t end = 0;
    bool continues = false;

    bool operator==(const Answer&) const = default;
  };
  struct Answers {
    int64_t begin = 0;  ///< index of the first token before them
    std::vector<Answer> all;
  };

  Marks(const std::vector<int64_t>& marks);  // NOLINT(google-explicit-constructor): EncodedExamples::marks
  /// Uses the marks of `answers` answers from byte `begin` on.
  Marks(Bytes bytes, int64_t begin, int64_t answers);

  int64_t answers() const { return answers_; }
  Answers read(int64_t first, int64_t count) const;
  /// Returns the number of examples whose last answer is below this answer.
  int64_t examples_before(int64_t answer) const;
  /// Returns the first answer of an example.
  int64_t answer_of(int64_t example) const;
  Marks slice(int64_t begin, int64_t end) const;

 private:
  /// Calls use(index, answer, begin_of_its_tokens) from answer `first` on, until it returns false.
  template <class Use>
  void visit(int64_t first, Use use) const;
  friend class ExampleBlocks;

  Bytes bytes_;
  int64_t begin_ = 0;
  int64_t answers_ = 0;
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
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  /// Tokens [begin, end) of an example. Each but the first is a target. A target counts if its index is in
  /// one of the ranges `counted`.
  struct Piece {
    int64_t begin = 0;
    int64_t end = 0;
    std::span<const Range> counted = {};

    int64_t targets() const { return end - begin - 1; }
    /// Returns the counted targets of a range.
    Range targets_in(const Range& range) const {
      const int64_t first = std::max(begin + 1, range.begin);
      return {first, std::max(first, std::min(end, range.end))};
    }
    int64_t counted_targets() const {
      int64_t sum = 0;
      for (const Range& range : counted) sum += targets_in(range).end - targets_in(range).begin;
      return sum;
    }
  };
  /// The beginning of a piece, in the example with this first answer.
  struct Place {
    int64_t example = 0;
    int64_t token = 0;

    // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer in a defaulted comparison
    auto operator<=>(const Place&) const = default;
  };

  /// Calls use(first_answer, first_answer_of_the_next, all_of_it) for the example of the answer `first` and
  /// those after it, until it returns false.
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
