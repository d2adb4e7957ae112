// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep {

/// Two tokens become one. Of all that are possible in a piece the one of least rank comes first, and of those
/// of equal rank the leftmost.
struct Merge {
  int32_t left;
  int32_t right;
  int32_t rank;
  int32_t merged;
};

/// Byte-pair merging of pieces (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909, over bytes as in
/// GPT-2).
class MergeTable {
 public:
  /// Memory that threads do not share.
  struct Scratch;

  explicit MergeTable(const std::vector<Merge>& merges);

  /// The merge of two tokens; null if they stay two.
  const Merge* find(int32_t left, int32_t right) const;

  /// Merges tokens in place until no more can be, and returns how many are left.
  size_t merge(int32_t* tokens, size_t count, Scratch& scratch) const;

 private:
  size_t merge_few(int32_t* tokens, size_t count, Scratch& scratch) const;
  size_t merge_many(int32_t* tokens, size_t count, Scratch& scratch) const;
  size_t slot_of(int32_t left, int32_t right) const;

  std::vector<Merge> slots_;  // open addressing; left is -1 where a slot is empty
  int shift_ = 0;
  /// Slots of merges of two low ids, -1 where there is none: those of bytes are low, and most are asked for.
  std::vector<int32_t> low_;
};

struct MergeTable::Scratch {
  struct Candidate {
    int32_t rank;
    uint32_t place;
  };

  std::vector<const Merge*> merges;
  std::vector<uint32_t> next;
  std::vector<uint32_t> previous;
  std::vector<Candidate> heap;
};

/// Whole pieces that are a token each.
class PieceTable {
 public:
  /// tokens[i] has the id i. Empty ones are not looked for.
  explicit PieceTable(const std::vector<std::string_view>& tokens);

  static uint64_t hash(std::string_view piece);
  /// The id; -1 if the piece is no token. `hash` is its hash().
  int32_t find(std::string_view piece, uint64_t hash) const;

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
    uint32_t begin = 0;
    uint32_t bytes = 0;
  };

  std::vector<Slot> slots_;
  std::vector<char> text_;
};

}  // namespace lockstep
