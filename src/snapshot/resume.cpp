// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/error.h"
#include "nn/module.h"
#include "snapshot/snapshot.h"
#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {
namespace {

/// Reading less than this between two parts costs no more than another request.
constexpr int64_t gap_bytes = int64_t{64} << 10;

/// Runs the body, which is this rank's own, and throws the first rank's UserError, if one has any, on all.
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

Shape reversed(const Shape& shape) { return shape.rank() == 2 ? Shape{shape[1], shape[0]} : shape; }

/// Whether this lay [out, in] in format 1: a weight of a GPT's products, or what an optimizer keeps of one.
bool was_out_in(const std::string& name) {
  return is_in_out(name) || is_in_out(name.substr(0, name.rfind('.')));
}

/// One file of a snapshot on its way to where this rank keeps its tensors.
class Restoration {
 public:
  /// UserError naming a tensor that is missing or of another shape.
  Restoration(const StoredSnapshot& snapshot, const SnapshotFile& file, PlacedTensors& tensors, size_t rank)
      : file_(file), tensors_(tensors), rank_(rank) {
    try {
      find_targets(snapshot.format());
    } catch (const UserError& problem) {
      throw UserError(concat(snapshot.name(), "/", file.key, ": ", problem.what()));
    }
  }

  /// The parts of the file that this rank needs, in order: whole blocks of what it holds.
  std::vector<Range> needed() const {
    std::vector<Range> parts;
    for (size_t t = 0; t < file_.tensors.size(); ++t)
      for (const Range& held : held_of(t, rank_)) {
        const Range part = file_.tensors[t].bytes_of(file_.tensors[t].whole_blocks(held));
        if (!parts.empty() && part.begin <= parts.back().end + gap_bytes)
          parts.back().end = std::max(parts.back().end, part.end);
        else
          parts.push_back(part);
      }
    return parts;
  }

  /// Of the tensors that are restored those that each rank holds whole, so that it verifies them alone, or
  /// the others.
  std::vector<bool> targets(bool whole_on_each) const {
    std::vector<bool> chosen(file_.tensors.size());
    for (size_t t = 0; t < chosen.size(); ++t) {
      if (!targets_[t]) continue;
      bool is_whole = true;
      for (size_t rank = 0; rank < tensors_.buffers()[targets_[t]->buffer].held.size(); ++rank)
        is_whole &= held_of(t, rank) == std::vector{file_.tensors[t].place};
      chosen[t] = is_whole == whole_on_each;
    }
    return chosen;
  }

  /// What the file holds from byte `begin` on. Pieces come in order.
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
  /// Where a tensor of the file goes.
  struct Target {
    size_t buffer = 0;
    int64_t shift = 0;  ///< from its place in the file's buffer to that in this one
    bool turns = false;
    Tensor unturned = {};
  };

  void find_targets(int64_t format) {
    targets_.resize(file_.tensors.size());
    std::map<std::string, size_t> found;
    for (size_t t = 0; t < file_.tensors.size(); ++t) found[file_.tensors[t].name] = t;
    bool is_turned = false;
    const bool is_model = file_.key == model_file;
    for (size_t b = is_model ? 0 : 1; b < (is_model ? 1 : tensors_.buffers().size()); ++b) {
      const PlacedTensors::Buffer& buffer = tensors_.buffers()[b];
      for (const PlacedTensors::Placed& one : tensors_.tensors()) {
        if (one.place.end > buffer.elements) continue;
        const std::string name = is_model ? one.name : concat(one.name, ".", buffer.state);
        require(found.contains(name), "there is no tensor ", name);
        const size_t t = found[name];
        const StoredTensor& stored = file_.tensors[t];
        const bool is_linear = format == 1 && one.shape.rank() == 2 && was_out_in(name);
        require(stored.dtype == buffer.dtype &&
                    (stored.shape == one.shape || (is_linear && reversed(stored.shape) == one.shape)),
                name, " is ", stored.dtype, stored.shape, " where the model has ", buffer.dtype, one.shape);
        is_turned |= stored.shape != one.shape;
        targets_[t] = Target{.buffer = b, .shift = one.place.begin - stored.place.begin, .turns = is_linear};
      }
    }
    // A square one does not tell, but every block has others beside it.
    for (auto& target : targets_)
      if (target) target->turns &= is_turned;
  }

  /// What a rank holds of a tensor, as elements of the file's buffer.
  std::vector<Range> held_of(size_t t, size_t rank) const {
    std::vector<Range> ranges;
    if (!targets_[t]) return ranges;
    const auto& [buffer, shift, turns, unturned] = *targets_[t];
    for (const Range& held : tensors_.buffers()[buffer].held[rank]) {
      const Range both = intersection({held.begin - shift, held.end - shift}, file_.tensors[t].place);
      if (both.size() > 0) ranges.push_back(both);
    }
    return ranges;
  }

  void place(size_t t, Range elements, const std::byte* from) {
    if (!targets_[t]) return;
    Target& target = *targets_[t];
    if (target.turns) return place_turned(t, elements, from);
    const int64_t size = bytes(file_.tensors[t].dtype);
    for (const Range& held : held_of(t, rank_)) {
      const Range both = intersection(held, elements);
      if (both.size() > 0)
        tensors_.set(target.buffer, {both.begin + target.shift, both.end + target.shift},
                     from + (both.begin - elements.begin) * size);
    }
  }

  /// Collects all of it first.
  void place_turned(size_t t, Range elements, const std::byte* from) {
    const StoredTensor& stored = file_.tensors[t];
    Target& target = *targets_[t];
    if (!target.unturned) target.unturned = empty(stored.shape, stored.dtype, cpu_stream());
    std::copy_n(from, elements.size() * bytes(stored.dtype),
                static_cast<std::byte*>(target.unturned.view().data) +
                    (stored.bytes_of(elements).begin - stored.begin));
    if (elements.end < stored.place.end) return;
    const Tensor turned = transpose(std::exchange(target.unturned, {}));
    target.turns = false;
    place(t, stored.place, static_cast<const std::byte*>(turned.view().data));
  }

  const SnapshotFile& file_;
  PlacedTensors& tensors_;
  size_t rank_;
  std::vector<std::optional<Target>> targets_;  ///< [tensor of the file]
};

/// Rank 0 reads the file and hands on each piece.
void read_through_first(const StoredSnapshot& snapshot, const World& world, const std::string& file,
                        Restoration& restoration) {
  Communicator& communicator = world.communicator();
  agree_on(world, [&] {
    int64_t bytes = 0;
    std::vector<std::byte> received;
    for (int64_t begin = 0; !world.is_first(); begin += bytes) {
      communicator.broadcast(&bytes, sizeof bytes, 0);
      if (bytes == 0) return;
      received.resize(static_cast<size_t>(bytes));
      communicator.broadcast(received.data(), bytes, 0);
      restoration.take(begin, received);
    }
    const auto hand_on = [&](std::span<const std::byte> piece) {
      bytes = std::ssize(piece);
      if (world.size() == 1) return;
      communicator.broadcast(&bytes, sizeof bytes, 0);
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

/// Each rank reads and verifies what it holds; tensors that some hold in part all verify together.
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

void restore_file(const StoredSnapshot& snapshot, const World& world, const std::string& key,
                  PlacedTensors& tensors, bool by_each) {
  std::string header;
  on_first_rank(world, [&] {
    header = snapshot.header(key);
    snapshot.file_of(key, header);
  });
  header = world.communicator().broadcast_text(header, 0);
  const SnapshotFile file = snapshot.file_of(key, header);
  Restoration restoration(snapshot, file, tensors, static_cast<size_t>(world.rank()));
  by_each ? read_by_each(snapshot, world, file, restoration)
          : read_through_first(snapshot, world, key, restoration);
}

}  // namespace

void restore(const StoredSnapshot& snapshot, const World& world, PlacedTensors& tensors) {
  const bool by_each =
      snapshot.has_tensor_checksums() && world.communicator().on_every_rank(snapshot.is_readable_here());
  restore_file(snapshot, world, model_file, tensors, by_each);
  if (tensors.buffers().size() > 1) restore_file(snapshot, world, optimizer_file, tensors, by_each);
}

}  // namespace lockstep
