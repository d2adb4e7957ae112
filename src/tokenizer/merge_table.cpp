// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/merge_table.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cstring>

namespace lockstep {
namespace {

/// The longest piece (in tokens) whose next merge is found by a linear search. Longer pieces use a heap.
constexpr size_t few = 64;
/// Pairs of ids below this number have their own table.
constexpr int32_t low_ids = 512;
constexpr uint64_t odd = 0x9E3779B97F4A7C15;

uint64_t mixed(uint64_t x) {
  x *= odd;
  x ^= x >> 32;
  return x;
}

uint64_t load(const char* bytes, size_t count) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, count);
  return word;
}

size_t slots_for(size_t entries) { return std::bit_ceil(std::max<size_t>(2 * entries, 16)); }

bool are_low(int32_t left, int32_t right) { return (left | right) < low_ids; }

size_t low_place(int32_t left, int32_t right) {
  return static_cast<size_t>(left) * low_ids + static_cast<size_t>(right);
}

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges)
    : slots_(slots_for(merges.size()), Merge{-1, -1, INT_MAX, -1}),
      shift_(64 - std::countr_zero(slots_for(merges.size()))),
      low_(static_cast<size_t>(low_ids) * low_ids, -1) {
  for (const Merge& merge : merges) {
    size_t slot = slot_of(merge.left, merge.right);
    while (slots_[slot].left >= 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = merge;
    if (are_low(merge.left, merge.right))
      low_[low_place(merge.left, merge.right)] = static_cast<int32_t>(slot);
  }
}

size_t MergeTable::slot_of(int32_t left, int32_t right) const {
  const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  return (mixed(key) * odd) >> shift_;
}

const Merge* MergeTable::find(int32_t left, int32_t right) const {
  if (are_low(left, right)) {
    const int32_t slot = low_[low_place(left, right)];
    return slot < 0 ? nullptr : &slots_[static_cast<size_t>(slot)];
  }
  for (size_t slot = slot_of(left, right);; slot = (slot + 1) & (slots_.size() - 1)) {
    const Merge& merge = slots_[slot];
    if (merge.left == left && merge.right == right) return &merge;
    if (merge.left < 0) return nullptr;
  }
}

size_t MergeTable::merge(int32_t* tokens, size_t count, Scratch& scratch) const {
  if (count < 2) return count;
  return count <= few ? merge_few(tokens, count, scratch) : merge_many(tokens, count, scratch);
}

size_t MergeTable::merge_few(int32_t* tokens, size_t count, Scratch& scratch) const {
  scratch.merges.resize(few);
  const Merge** merges = scratch.merges.data();
  const auto rank_of = [](const Merge* merge) { return merge ? merge->rank : INT_MAX; };
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = find(tokens[i], tokens[i + 1]);
  while (count > 1) {
    size_t best = 0;
    int32_t least = rank_of(merges[0]);
    for (size_t i = 1; i + 1 < count; ++i) {
      const int32_t rank = rank_of(merges[i]);
      if (rank < least) {
        best = i;
        least = rank;
      }
    }
    if (!merges[best]) break;
    tokens[best] = merges[best]->merged;
    --count;
    std::copy(tokens + best + 2, tokens + count + 1, tokens + best + 1);
    std::copy(merges + best + 1, merges + count, merges + best);
    if (best + 1 < count) merges[best] = find(tokens[best], tokens[best + 1]);
    if (best > 0) merges[best - 1] = find(tokens[best - 1], tokens[best]);
  }
  return count;
}

/// Merges with a linked list of the remaining tokens and a heap of candidate merges. A candidate is stale and
/// skipped if its place now has another merge or none.
size_t MergeTable::merge_many(int32_t* tokens, size_t count, Scratch& scratch) const {
  std::vector<const Merge*>& merges = scratch.merges;
  std::vector<uint32_t>& next = scratch.next;
  std::vector<uint32_t>& previous = scratch.previous;
  std::vector<Scratch::Candidate>& heap = scratch.heap;
  merges.assign(count, nullptr);
  next.resize(count);
  previous.resize(count);
  heap.clear();
  const auto comes_later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.place > b.place;
  };
  const auto consider = [&](uint32_t place) {
    merges[place] = next[place] < count ? find(tokens[place], tokens[next[place]]) : nullptr;
    if (!merges[place]) return;
    heap.push_back({merges[place]->rank, place});
    std::push_heap(heap.begin(), heap.end(), comes_later);
  };
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
  }
  for (uint32_t i = 0; i + 1 < count; ++i) consider(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const auto [rank, place] = heap.back();
    heap.pop_back();
    if (!merges[place] || merges[place]->rank != rank) continue;
    const uint32_t gone = next[place];
    tokens[place] = merges[place]->merged;
    merges[gone] = nullptr;
    next[place] = next[gone];
    if (next[place] < count) previous[next[place]] = place;
    consider(place);
    if (place > 0) consider(previous[place]);
  }
  size_t left = 0;
  for (uint32_t i = 0; i < count; i = next[i]) tokens[left++] = tokens[i];
  return left;
}

PieceTable::PieceTable(const std::vector<std::string_view>& tokens) : slots_(slots_for(tokens.size())) {
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) continue;
    const uint64_t whole = hash(tokens[id]);
    size_t slot = whole & (slots_.size() - 1);
    while (slots_[slot].id >= 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = {.hash = static_cast<uint32_t>(whole >> 32),
                    .id = static_cast<int32_t>(id),
                    .begin = static_cast<uint32_t>(text_.size()),
                    .bytes = static_cast<uint32_t>(tokens[id].size())};
    text_.insert(text_.end(), tokens[id].begin(), tokens[id].end());
  }
}

uint64_t PieceTable::hash(std::string_view piece) {
  const char* at = piece.data();
  size_t left = piece.size();
  uint64_t state = left * odd;
  for (; left > 8; left -= 8, at += 8) state = mixed(state ^ load(at, 8)) * odd;
  // Two overlapping loads of a fixed size are faster than one load of a variable size.
  uint64_t tail = 0;
  if (left == 8)
    tail = load(at, 8);
  else if (left >= 4)
    tail = load(at, 4) | load(at + left - 4, 4) << 32;
  else if (left >= 2)
    tail = load(at, 2) | load(at + left - 2, 2) << 16;
  else if (left == 1)
    tail = load(at, 1);
  return mixed(mixed(state ^ tail));
}

int32_t PieceTable::find(std::string_view piece, uint64_t hash) const {
  for (size_t slot = hash & (slots_.size() - 1);; slot = (slot + 1) & (slots_.size() - 1)) {
    const Slot& entry = slots_[slot];
    if (entry.id < 0) return -1;
    if (entry.hash == static_cast<uint32_t>(hash >> 32) && entry.bytes == piece.size() &&
        std::memcmp(text_.data() + entry.begin, piece.data(), piece.size()) == 0)
      return entry.id;
  }
}

}  // namespace lockstep
