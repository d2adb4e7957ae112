// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep {

/// A rule that replaces two adjacent tokens by one. Within a piece the merge of the lowest rank is applied
/// first, and the leftmost one among equal ranks.
struct Merge {
  int32_t left;
  int32_t right;
  int32_t rank;
  int32_t merged;
};

/// A table of merges for byte-pair encoding (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909, over
/// bytes as in GPT-2).
class MergeTable {
 public:
  /// Temporary memory of one thread.
  struct Scratch;

  explicit MergeTable(const std::vector<Merge>& merges);

  /// Returns the merge of two tokens, or null if they do not merge.
  const Merge* find(int32_t left, int32_t right) const;

  /// Merges tokens in place until no merge applies. Returns the number of tokens left.
  size_t merge(int32_t* tokens, size_t count, Scratch& scratch) const;

 private:
  size_t merge_few(int32_t* tokens, size_t count, Scratch& scratch) const;
  size_t merge_many(int32_t* tokens, size_t count, Scratch& scratch) const;
  size_t slot_of(int32_t left, int32_t right) const;

  std::vector<Merge> slots_;  // open addressing; left is -1 in an empty slot
  int shift_ = 0;
  /// Slots of merges of two low ids, or -1. Most lookups ask for such a pair, since bytes have low ids.
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

/// A hash table of the pieces that are one token each.
class PieceTable {
 public:
  /// tokens[i] has the id i. Empty tokens are skipped.
  explicit PieceTable(const std::vector<std::string_view>& tokens);

  static uint64_t hash(std::string_view piece);
  /// Returns the id of a piece, or -1 if the piece is no token. `hash` is hash(piece).
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
