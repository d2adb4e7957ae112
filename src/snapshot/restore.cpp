// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "lockstep/core/error.h"
#include "lockstep/snapshot/snapshot_files.h"
#include "lockstep/snapshot/stored_snapshot.h"

namespace lockstep {
namespace {

/// A gap shorter than this between two parts is read too: that costs no more than another request.
constexpr int64_t gap_bytes = int64_t{64} << 10;

/// Runs each rank's own body. If bodies throw UserError, all ranks throw the error of the first such rank.
template <class Body>
void agree_on(const World& world, Body body) {
  std::string problem;
  try {
    body();
  } catch (const UserError& error) {
    problem = error.what();
  }
  for (const std::string& one : world.communicator().all_gather_text(problem)) require(one.empty(), one);
}

/// Returns whether a tensor of shape `part` can be some or all rows of a tensor of shape `whole`.
bool has_rows_of(const Shape& part, const Shape& whole) {
  if (part.rank() != whole.rank() || part.rank() == 0) return part == whole;
  return part[0] <= whole[0] && std::equal(part.begin() + 1, part.end(), whole.begin() + 1);
}

/// A file of a snapshot that is loaded into this rank's tensors.
class Restoration {
 public:
  /// Throws UserError naming a tensor whose shape or dtype differs from the model's.
  Restoration(const StoredSnapshot& snapshot, const SnapshotFile& file, PlacedTensors& tensors, size_t rank)
      : file_(file), tensors_(tensors), rank_(rank) {
    try {
      find_targets();
    } catch (const UserError& problem) {
      throw UserError(concat(snapshot.name(), "/", file.key, ": ", problem.what()));
    }
  }

  const SnapshotFile& file() const { return file_; }
  /// Returns how many of these elements of a buffer the file contains.
  int64_t brings(size_t buffer, Range place) const {
    int64_t elements = 0;
    for (size_t t = 0; t < targets_.size(); ++t)
      if (targets_[t] && targets_[t]->buffer == buffer) {
        const Range& stored = file_.tensors[t].place;
        elements +=
            intersection({stored.begin + targets_[t]->shift, stored.end + targets_[t]->shift}, place).size();
      }
    return elements;
  }

  /// Returns the parts of the file that this rank reads, in order. They cover whole blocks of tensors.
  std::vector<Range> needed() const {
    std::vector<Range> parts;
    for (size_t t = 0; t < file_.tensors.size(); ++t)
      for (const Range& range : read_by(t, rank_)) {
        const Range part = file_.tensors[t].bytes_of(file_.tensors[t].whole_blocks(range));
        if (!parts.empty() && part.begin <= parts.back().end + gap_bytes)
          parts.back().end = std::max(parts.back().end, part.end);
        else
          parts.push_back(part);
      }
    return parts;
  }

  /// Selects restored tensors ([tensor of the file]): those that every rank holds whole, or the others. A
  /// rank verifies a tensor that it holds whole without the other ranks.
  std::vector<bool> targets(bool whole_on_each) const {
    std::vector<bool> chosen(file_.tensors.size());
    for (size_t t = 0; t < chosen.size(); ++t) {
      if (!targets_[t]) continue;
      bool is_whole = true;
      for (size_t rank = 0; rank < tensors_.buffers()[targets_[t]->buffer].held.size(); ++rank)
        is_whole &= read_by(t, rank) == std::vector{file_.tensors[t].place};
      chosen[t] = is_whole == whole_on_each;
    }
    return chosen;
  }

  /// Loads a piece of the file that begins at byte `begin`. Pieces arrive in order.
  void take(int64_t begin, std::span<const std::byte> piece) {
    const Range bytes{begin, begin + std::ssize(piece)};
    auto tensor =
        std::ranges::upper_bound(file_.tensors, begin, {}, [](const auto& one) { return one.end(); });
    for (; tensor != file_.tensors.end() && tensor->begin < bytes.end; ++tensor) {
      const Range both = intersection(bytes, {tensor->begin, tensor->end()});
      const auto t = static_cast<size_t>(tensor - file_.tensors.begin());
      if (both.size() > 0) place(t, tensor->elements_of(both), piece.data() + (both.begin - begin));
    }
  }

 private:
  /// The destination of a tensor of the file.
  struct Target {
    size_t buffer = 0;
    int64_t shift = 0;  ///< position in this run's buffer minus position in the file's
  };

  void find_targets() {
    targets_.resize(file_.tensors.size());
    std::map<std::string, size_t> found;
    for (size_t t = 0; t < file_.tensors.size(); ++t) found[file_.tensors[t].name] = t;
    const bool is_model = is_model_file(file_.key), is_padding = file_.key == padding_file;
    for (size_t b = is_model ? 0 : 1; b < (is_model ? 1 : tensors_.buffers().size()); ++b) {
      const PlacedTensors::Buffer& buffer = tensors_.buffers()[b];
      for (const PlacedTensors::Entry& one : tensors_.tensors()) {
        if (one.place.end > buffer.elements) continue;
        const std::string name = is_model ? one.name : concat(one.name, ".", buffer.state);
        if (!found.contains(name)) continue;
        const size_t t = found[name];
        const StoredTensor& stored = file_.tensors[t];
        require(stored.dtype == buffer.dtype && has_rows_of(stored.shape, one.shape), name, " is ",
                stored.dtype, stored.shape, ", but the model has ", buffer.dtype, one.shape);
        const int64_t shift =
            is_padding ? one.place.end - stored.place.end : one.place.begin - stored.place.begin;
        targets_[t] = Target{.buffer = b, .shift = shift};
      }
    }
  }

  /// Returns the elements of a tensor that a rank reads, as ranges of the file's buffer: those that it holds.
  /// Rank 0 also reads tensors that the model does not have, so that no damage goes unnoticed.
  std::vector<Range> read_by(size_t t, size_t rank) const {
    std::vector<Range> ranges;
    if (!targets_[t] && rank == 0) return {file_.tensors[t].place};
    if (!targets_[t]) return ranges;
    const auto& [buffer, shift] = *targets_[t];
    for (const Range& held : tensors_.buffers()[buffer].held[rank]) {
      const Range both = intersection({held.begin - shift, held.end - shift}, file_.tensors[t].place);
      if (both.size() > 0) ranges.push_back(both);
    }
    return ranges;
  }

  void place(size_t t, Range elements, const std::byte* from) {
    if (!targets_[t]) return;
    const Target& target = *targets_[t];
    const int64_t size = bytes(file_.tensors[t].dtype);
    for (const Range& held : read_by(t, rank_)) {
      const Range both = intersection(held, elements);
      if (both.size() > 0)
        tensors_.set(target.buffer, {both.begin + target.shift, both.end + target.shift},
                     from + (both.begin - elements.begin) * size);
    }
  }

  const SnapshotFile& file_;
  PlacedTensors& tensors_;
  size_t rank_;
  std::vector<std::optional<Target>> targets_;  ///< [tensor of the file]
};

/// Reads the file on rank 0, which broadcasts each piece.
void read_through_first(const StoredSnapshot& snapshot, const World& world, const SnapshotFile& file,
                        Restoration& restoration) {
  Communicator& communicator = world.communicator();
  agree_on(world, [&] {
    int64_t bytes = 0;
    std::vector<std::byte> received;
    for (int64_t begin = std::ssize(file.header); !world.is_first(); begin += bytes) {
      bytes = communicator.broadcast_value(bytes, 0);
      if (bytes == 0) return;
      received.resize(static_cast<size_t>(bytes));
      communicator.broadcast(received.data(), bytes, 0);
      restoration.take(begin, received);
    }
    const auto hand_on = [&](std::span<const std::byte> piece) {
      if (world.size() == 1) return;
      bytes = communicator.broadcast_value(std::ssize(piece), 0);
      if (bytes > 0) communicator.broadcast(const_cast<std::byte*>(piece.data()), bytes, 0);
    };
    try {
      snapshot.read(file, [&](int64_t begin, std::span<const std::byte> piece) {
        if (!piece.empty()) hand_on(piece);
        restoration.take(begin, piece);
      });
    } catch (const UserError&) {
      hand_on({});
      throw;
    }
    hand_on({});
  });
}

/// Reads and verifies on each rank the tensors that it holds. All ranks together verify those held in parts.
void read_by_each(const StoredSnapshot& snapshot, const World& world, const SnapshotFile& file,
                  Restoration& restoration) {
  TensorSums sums(file.tensors);
  agree_on(world, [&] {
    for (const Range& part : restoration.needed())
      snapshot.read(file.key, part, [&](int64_t begin, std::span<const std::byte> piece) {
        sums.take(begin, piece);
        restoration.take(begin, piece);
      });
    snapshot.compare(file, sums, restoration.targets(true));
  });
  const std::vector<bool> in_parts = restoration.targets(false);
  const std::vector<std::string> parts = world.communicator().all_gather_text(sums.packed(in_parts));
  on_first_rank(world, [&] {
    for (size_t rank = 1; rank < parts.size(); ++rank) sums.add(parts[rank]);
    snapshot.compare(file, sums, in_parts);
  });
}

/// Returns a file on all ranks. Rank 0 has read its header.
SnapshotFile shared_file(const StoredSnapshot& snapshot, const World& world, const std::string& key) {
  const std::string header =
      world.communicator().broadcast_text(world.is_first() ? snapshot.file(key).header : "", 0);
  return world.is_first() ? snapshot.file(key) : snapshot.file_of(key, header);
}

/// Throws UserError unless the files contain every tensor whole. A tensor may be in several files.
void require_all(const StoredSnapshot& snapshot, const std::deque<Restoration>& restorations,
                 const PlacedTensors& tensors, size_t buffers) {
  for (size_t b = 0; b < buffers; ++b)
    for (const PlacedTensors::Entry& one : tensors.tensors()) {
      if (one.place.end > tensors.buffers()[b].elements) continue;
      int64_t brought = 0;
      for (const Restoration& restoration : restorations) brought += restoration.brings(b, one.place);
      const std::string file = concat(snapshot.name(), "/", b == 0 ? model_file : optimizer_file);
      const std::string name = b == 0 ? one.name : concat(one.name, ".", tensors.buffers()[b].state);
      require(brought > 0, file, ": there is no tensor ", name);
      require(brought == one.place.size(), file, ": ", name, " has ", brought,
              " elements, but the model has ", one.place.size(), ", ", one.shape);
    }
}

}  // namespace

void restore(const StoredSnapshot& snapshot, const World& world, PlacedTensors& tensors, bool with_states) {
  const bool by_each = world.communicator().on_every_rank(snapshot.is_readable_here());
  const size_t buffers = with_states ? tensors.buffers().size() : 1;
  std::deque<SnapshotFile> files;
  std::deque<Restoration> restorations;
  for (const std::string& key : snapshot.files()) {
    if (!is_model_file(key) && !(key == optimizer_file && buffers > 1)) continue;
    files.push_back(shared_file(snapshot, world, key));
    restorations.emplace_back(snapshot, files.back(), tensors, static_cast<size_t>(world.rank()));
  }
  require_all(snapshot, restorations, tensors, buffers);
  for (Restoration& restoration : restorations)
    by_each ? read_by_each(snapshot, world, restoration.file(), restoration)
            : read_through_first(snapshot, world, restoration.file(), restoration);
}

}  // namespace lockstep
