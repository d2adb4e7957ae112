// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameters/placed_tensors.h"
#include "lockstep/snapshot/snapshot_store.h"

namespace lockstep {

/// Tensors without a model. A test chooses the elements that each rank holds. All other elements are NaN.
class HeldTensors final : public PlacedTensors {
 public:
  /// A function that returns the ranges of a buffer that each rank holds.
  using Placement = Ownership (*)(int64_t elements, int ranks);
  static Ownership everything(int64_t elements, int ranks) {
    return Ownership(static_cast<size_t>(ranks), {{0, elements}});
  }
  /// Returns two owned ranges for each rank, as if there were two units.
  static Ownership owned_ranges(int64_t elements, int ranks) {
    Ownership held(static_cast<size_t>(ranks));
    const int64_t blocks = elements / block, middle = blocks / 3;
    for (const auto& [first, end] : {std::pair{int64_t{0}, middle}, std::pair{middle, blocks}})
      for (int rank = 0; rank < ranks; ++rank)
        held[static_cast<size_t>(rank)].push_back({(first + (end - first) * rank / ranks) * block,
                                                   (first + (end - first) * (rank + 1) / ranks) * block});
    return held;
  }
  /// Returns the ranges of two equal groups of ranks. The ranks of each group together hold everything. With
  /// an odd number of ranks, the last one holds everything.
  static Ownership groups(int64_t elements, int ranks) {
    const Ownership half = owned_ranges(elements, std::max(1, ranks / 2));
    Ownership held = everything(elements, ranks);
    for (size_t rank = 0; rank < 2 * half.size() && rank < held.size(); ++rank)
      held[rank] = half[rank % half.size()];
    return held;
  }

  HeldTensors(const std::vector<std::pair<std::string, Shape>>& shapes,
              const std::vector<std::string>& states, int ranks = 1, Placement values = everything,
              Placement of_states = everything) {
    int64_t end = 0;
    for (const auto& [name, shape] : shapes) {
      tensors_.push_back({name, shape, {end, end + shape.elements()}});
      end += (shape.elements() + 15) / 16 * 16;
    }
    end = (end + block - 1) / block * block;
    add("", end, values(end, ranks));
    for (const std::string& state : states) add(state, end, of_states(end, ranks));
  }

  /// Writes distinct numbers to the elements that this rank holds.
  void count(int rank, double first) {
    for (size_t b = 0; b < buffers_.size(); ++b)
      for (const Range& range : buffers_[b].held[static_cast<size_t>(rank)])
        for (int64_t i = range.begin; i < range.end; ++i) at(b, i) = number(first, b, i);
  }
  static float number(double first, size_t buffer, int64_t element) {
    return static_cast<float>(first + 1e6 * static_cast<double>(buffer) + static_cast<double>(element));
  }
  float& at(size_t buffer, int64_t element) { return memory_[buffer][static_cast<size_t>(element)]; }

  void get(size_t buffer, Range range, std::byte* to) const override {
    std::memcpy(to, memory_[buffer].data() + range.begin, static_cast<size_t>(range.size()) * sizeof(float));
    got_ += range.size();
  }
  void set(size_t buffer, Range range, const std::byte* from) override {
    std::memcpy(memory_[buffer].data() + range.begin, from,
                static_cast<size_t>(range.size()) * sizeof(float));
    set_.emplace_back(buffer, range);
  }
  /// Returns the number of elements that were read. ranges_set() returns the ranges that were written.
  int64_t elements_got() const { return got_; }
  const std::vector<std::pair<size_t, Range>>& ranges_set() const { return set_; }

 private:
  void add(const std::string& state, int64_t elements, Ownership held) {
    buffers_.push_back({.state = state, .dtype = DType::f32, .elements = elements, .held = std::move(held)});
    memory_.emplace_back(static_cast<size_t>(elements), std::numeric_limits<float>::quiet_NaN());
  }

  std::vector<std::vector<float>> memory_;
  mutable int64_t got_ = 0;
  std::vector<std::pair<size_t, Range>> set_;
};

/// Writes a snapshot of the elements of one rank.
inline void save_snapshot(SnapshotStore& store, const Snapshot& snapshot, const PlacedTensors& tensors,
                          SnapshotStore::Kind kind = SnapshotStore::Kind::step,
                          const ModelLayout& layout = {}) {
  const std::vector<SnapshotFile> files = files_of(tensors, layout);
  const Deal deal = deal_to_first(files, 1);
  std::vector<std::byte> memory(static_cast<size_t>(bytes_of(files, deal[0])));
  collect(World::alone(), tensors, files, deal, memory.data());
  const std::string begun = store.begin(kind, snapshot.step, files);
  try {
    store.end(kind, snapshot, begun, files,
              {store.write(kind, snapshot.step, begun, files, deal[0], memory.data())});
  } catch (...) {
    store.drop(kind, snapshot.step, begun);
    throw;
  }
}

}  // namespace lockstep
