// SPDX-License-Identifier: Apache-2.0
#include "lockstep/snapshot/snapshot_files.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/text.h"
#include "lockstep/tensor/safetensors.h"

namespace lockstep {
namespace {

constexpr int64_t block = PlacedTensors::block;

/// A tensor of a file that is to be written.
struct Content {
  StoredTensor tensor;
  size_t buffer = SnapshotFile::no_buffer;
};

/// Makes a file of these tensors. Zeros come first, because rank 0 writes the front of a file.
SnapshotFile make_file(const std::string& key, std::vector<Content> contents) {
  std::stable_partition(contents.begin(), contents.end(),
                        [](const Content& one) { return one.buffer == SnapshotFile::no_buffer; });
  SnapshotFile file{.key = key, .header = {}, .tensors = {}};
  SafeTensorsHeader header;
  if (is_model_file(key)) header.metadata = {{"format", "pt"}};
  for (const auto& [tensor, buffer] : contents)
    header.entries.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
  file.header = header.to_bytes();
  file.bytes = std::ssize(file.header);
  for (auto& [tensor, buffer] : contents) {
    tensor.begin = file.bytes;
    file.bytes += tensor.bytes();
    if (buffer == SnapshotFile::no_buffer) file.zeros.append(static_cast<size_t>(tensor.bytes()), '\0');
    file.tensors.push_back(std::move(tensor));
    file.buffers.push_back(buffer);
  }
  return file;
}

/// Returns the part of a tensor that has these rows. Returns a tensor without dimensions whole.
Content part_of_tensor(const PlacedTensors::Entry& one, const std::string& name, DType dtype, size_t buffer,
                       Range rows) {
  Content part{.tensor = {name, dtype, one.shape, one.place}, .buffer = buffer};
  if (one.shape.rank() == 0 || rows.size() == one.shape[0]) return part;
  const int64_t row = one.place.size() / one.shape[0];
  part.tensor.shape = {rows.size()};
  for (int dimension = 1; dimension < one.shape.rank(); ++dimension)
    part.tensor.shape.append(one.shape[dimension]);
  part.tensor.place = {one.place.begin + rows.begin * row, one.place.begin + rows.end * row};
  return part;
}

/// Puts the model into one file, or into several files and an index that lists them. The tensors of a file
/// have at most `layout.most_bytes`, unless a single tensor is larger.
std::vector<SnapshotFile> model_files(const std::vector<Content>& contents, const ModelLayout& layout,
                                      std::map<std::string, std::string>& texts) {
  std::vector<std::vector<Content>> shards(1);
  int64_t bytes = 0, all = 0;
  for (const Content& one : contents) {
    if (!shards.back().empty() && bytes + one.tensor.bytes() > layout.most_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(one);
    bytes += one.tensor.bytes();
    all += one.tensor.bytes();
  }
  if (shards.size() == 1) return {make_file(model_file, shards[0])};
  const auto digits = [](size_t number) { return zero_padded(static_cast<int64_t>(number), 5); };
  std::vector<SnapshotFile> files;
  nlohmann::ordered_json index = {{"metadata", {{"total_size", all}}}};
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    const std::string key =
        concat("model-", digits(shard + 1), "-of-", digits(shards.size()), ".safetensors");
    for (const Content& one : shards[shard]) index["weight_map"][one.tensor.name] = key;
    files.push_back(make_file(key, std::move(shards[shard])));
  }
  texts[concat(model_file, ".index.json")] = index.dump(2) + "\n";
  return files;
}

/// Returns the blocks of a buffer that each rank writes. If several ranks hold a block, its position decides:
/// each of them has an equal part of the whole buffer.
Ownership givers(const PlacedTensors::Buffer& buffer) {
  std::map<int64_t, std::vector<std::pair<int, bool>>> changes;  // [element]: (rank, begins or ends there)
  for (size_t rank = 0; rank < buffer.held.size(); ++rank)
    for (const Range& range : buffer.held[rank]) {
      if (range.size() == 0) continue;
      changes[range.begin].emplace_back(rank, true);
      changes[range.end].emplace_back(rank, false);
    }
  Ownership given(buffer.held.size());
  std::set<int> holders;
  const int64_t blocks = (buffer.elements + block - 1) / block;
  int64_t covered = 0;
  for (auto change = changes.begin(); change != changes.end(); ++change) {
    for (const auto& [rank, begins] : change->second)
      if (!begins) holders.erase(rank);
    for (const auto& [rank, begins] : change->second)
      if (begins) holders.insert(rank);
    if (holders.empty() || std::next(change) == changes.end()) continue;
    const Range held{change->first, std::next(change)->first};
    covered += held.size();
    int64_t index = 0;
    const auto count = std::ssize(holders);
    for (const int rank : holders) {
      const Range turn{blocks * index / count * block, blocks * (index + 1) / count * block};
      ++index;
      if (const Range both = intersection(held, turn); both.size() > 0)
        given[static_cast<size_t>(rank)].push_back(both);
    }
  }
  expect(covered == buffer.elements, "ranks hold ", covered, " of ", buffer.elements, " elements");
  return given;
}

/// Returns the parts of `range` that are in none of the `others`, which are in order.
std::vector<Range> without(Range range, const std::vector<Range>& others) {
  std::vector<Range> rest;
  for (const Range& other : others) {
    const Range both = intersection(range, other);
    if (both.size() == 0) continue;
    if (range.begin < both.begin) rest.push_back({range.begin, both.begin});
    range.begin = both.end;
  }
  if (range.size() > 0) rest.push_back(range);
  return rest;
}

/// Ranges of a buffer in order, each with the rank that sends it to others.
using Senders = std::vector<std::pair<Range, size_t>>;

Senders senders_of(const PlacedTensors::Buffer& buffer) {
  const Ownership given = givers(buffer);
  Senders senders;
  for (size_t rank = 0; rank < given.size(); ++rank)
    for (const Range& range : given[rank]) senders.emplace_back(range, rank);
  std::ranges::sort(senders, {}, [](const auto& one) { return one.first.begin; });
  return senders;
}

/// Finds the sources of one rank's pieces. Calls `local(buffer, range, byte of its memory)` for ranges that
/// the rank holds. Calls `from(sender, buffer, range, byte)` for ranges that another rank sends.
template <class Local, class From>
void for_each_source(const PlacedTensors& tensors, const std::vector<SnapshotFile>& files,
                     const std::vector<Senders>& senders, const RankShare& share, size_t rank, Local local,
                     From from) {
  int64_t begin = 0;
  for (const RankShare::Piece& piece : share.pieces) {
    const StoredTensor& tensor = files[piece.file].tensors[piece.tensor];
    const size_t buffer = files[piece.file].buffers[piece.tensor];
    const auto place = [&](const Range& range) {
      return begin + (range.begin - piece.elements.begin) * bytes(tensor.dtype);
    };
    const std::vector<Range>& held = tensors.buffers()[buffer].held[rank];
    for (const Range& range : held)
      if (const Range both = intersection(range, piece.elements); both.size() > 0)
        local(buffer, both, place(both));
    for (const Range& missing : without(piece.elements, held)) {
      auto sender = std::ranges::upper_bound(senders[buffer], missing.begin, {},
                                             [](const auto& one) { return one.first.end; });
      for (; sender != senders[buffer].end() && sender->first.begin < missing.end; ++sender) {
        const Range both = intersection(sender->first, missing);
        from(sender->second, buffer, both, place(both));
      }
    }
    begin += piece.elements.size() * bytes(tensor.dtype);
  }
}

/// Sends elements between ranks in rounds. In a round no rank stages more than most_staged_bytes of what it
/// sends. All ranks add the same transfers in the same order, so they make the same rounds.
class StagedExchange {
 public:
  /// `memory` is that of this rank's pieces.
  StagedExchange(const World& world, const PlacedTensors& tensors, std::byte* memory)
      : world_(world), tensors_(tensors), memory_(memory), added_bytes_(static_cast<size_t>(world.size())) {}

  /// Adds a range of a buffer that `sender` sends to byte `begin` of the receiver's memory.
  void add(size_t sender, size_t receiver, size_t buffer, Range range, int64_t begin) {
    const auto me = static_cast<size_t>(world_.rank());
    const int64_t size = bytes(tensors_.buffers()[buffer].dtype);
    int64_t& added = added_bytes_[sender];
    while (range.size() > 0) {
      added = (added + size - 1) / size * size;
      const auto round = static_cast<size_t>(added / most_staged_bytes);
      const int64_t staged = added % most_staged_bytes;
      const int64_t count = std::min(range.size(), (most_staged_bytes - staged) / size);
      rounds_.resize(std::max(rounds_.size(), round + 1));
      const Range now{range.begin, range.begin + count};
      if (sender == me) rounds_[round].sends.push_back({static_cast<int>(receiver), buffer, now, staged});
      if (receiver == me)
        rounds_[round].receives.push_back({static_cast<int>(sender), memory_ + begin, count * size});
      added += count * size;
      range.begin = now.end;
      begin += count * size;
    }
  }

  void run() {
    const int64_t mine = added_bytes_[static_cast<size_t>(world_.rank())];
    const MemoryScope scope("snapshot staging");
    const std::shared_ptr<std::byte> staging =
        mine > 0 ? allocate(std::min(mine, most_staged_bytes), cpu_stream()) : nullptr;
    for (const Round& round : rounds_) {
      std::vector<SentMessage> sends;
      for (const auto& [receiver, buffer, range, staged] : round.sends) {
        tensors_.get(buffer, range, staging.get() + staged);
        sends.push_back(
            {receiver, staging.get() + staged, range.size() * bytes(tensors_.buffers()[buffer].dtype)});
      }
      world_.communicator().exchange(sends, round.receives);
    }
  }

 private:
  struct Send {
    int receiver = 0;
    size_t buffer = 0;
    Range range;
    int64_t staged = 0;  ///< its position in the staging memory
  };
  /// The part of this rank in a round.
  struct Round {
    std::vector<Send> sends;
    std::vector<ReceivedMessage> receives;
  };

  const World& world_;
  const PlacedTensors& tensors_;
  std::byte* memory_;
  std::vector<int64_t> added_bytes_;  ///< [sender]
  std::vector<Round> rounds_;
};

}  // namespace

bool is_snapshot_file(const std::string& key) {
  std::string shape = key;
  std::replace_if(
      shape.begin(), shape.end(), [](char one) { return one >= '0' && one <= '9'; }, '0');
  return shape == "model-00000-of-00000.safetensors" || key == concat(model_file, ".index.json") ||
         key == model_file || key == optimizer_file || key == padding_file || key == state_file ||
         std::ranges::count(model_text_files, key) > 0;
}

std::vector<SnapshotFile> files_of(const PlacedTensors& tensors, const ModelLayout& layout) {
  std::vector<Content> model, optimizer, padding;
  for (const auto& [name, shape] : layout.zeros)
    model.push_back({{name, DType::f32, shape, {0, shape.elements()}}});
  for (size_t b = 0; b < tensors.buffers().size(); ++b) {
    const PlacedTensors::Buffer& buffer = tensors.buffers()[b];
    for (const PlacedTensors::Entry& one : tensors.tensors()) {
      if (one.place.end > buffer.elements) continue;  // frozen
      const int64_t rows = one.shape.rank() > 0 ? one.shape[0] : 1;
      const auto cut = layout.rows.find(one.name);
      const int64_t kept = b == 0 && cut != layout.rows.end() ? std::min(cut->second, rows) : rows;
      const std::string name = b == 0 ? one.name : concat(one.name, ".", buffer.state);
      (b == 0 ? model : optimizer).push_back(part_of_tensor(one, name, buffer.dtype, b, {0, kept}));
      if (kept < rows) padding.push_back(part_of_tensor(one, name, buffer.dtype, b, {kept, rows}));
    }
  }
  std::map<std::string, std::string> texts = layout.texts;
  std::vector<SnapshotFile> files = model_files(model, layout, texts);
  files.push_back(make_file(optimizer_file, std::move(optimizer)));
  if (!padding.empty()) files.push_back(make_file(padding_file, std::move(padding)));
  for (const auto& [key, text] : texts)
    files.push_back({.key = key, .header = text, .tensors = {}, .bytes = std::ssize(text)});
  return files;
}

Deal deal_to_holders(const PlacedTensors& tensors, const std::vector<SnapshotFile>& files) {
  Deal deal(tensors.buffers().front().held.size());
  std::vector<Ownership> given;
  for (const PlacedTensors::Buffer& buffer : tensors.buffers()) given.push_back(givers(buffer));
  for (size_t rank = 0; rank < deal.size(); ++rank)
    for (size_t f = 0; f < files.size(); ++f) {
      deal[rank].bytes.push_back(
          {rank == 0 ? 0 : std::ssize(files[f].header) + std::ssize(files[f].zeros), files[f].bytes});
      for (size_t t = files[f].first_held(); t < files[f].tensors.size(); ++t)
        for (const Range& range : given[files[f].buffers[t]][rank])
          if (const Range both = intersection(range, files[f].tensors[t].place); both.size() > 0)
            deal[rank].pieces.push_back({f, t, both});
    }
  return deal;
}

Deal deal_parts(const std::vector<SnapshotFile>& files, int ranks,
                const std::function<int64_t(int64_t)>& part_bytes) {
  int64_t parts = 0, before = 0;
  for (const SnapshotFile& file : files) parts += (file.bytes - 1) / part_bytes(file.bytes) + 1;
  Deal deal(static_cast<size_t>(ranks));
  for (size_t f = 0; f < files.size(); ++f) {
    const SnapshotFile& file = files[f];
    const int64_t size = part_bytes(file.bytes), count = (file.bytes - 1) / size + 1;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      // Part p of all files belongs to rank p * ranks / parts.
      const auto first_of = [&](int64_t of) {
        return std::clamp((parts * of + ranks - 1) / ranks - before, int64_t{0}, count);
      };
      RankShare& share = deal[static_cast<size_t>(rank)];
      const Range mine{first_of(rank) * size, std::min(first_of(rank + 1) * size, file.bytes)};
      share.bytes.push_back({std::min(mine.begin, mine.end), mine.end});
      for (size_t t = file.first_held(); t < file.tensors.size(); ++t) {
        const StoredTensor& tensor = file.tensors[t];
        const Range both = intersection({tensor.begin, tensor.end()}, share.bytes.back());
        if (both.size() > 0) share.pieces.push_back({f, t, tensor.whole_blocks(tensor.elements_of(both))});
      }
    }
    before += count;
  }
  return deal;
}

Deal deal_to_first(const std::vector<SnapshotFile>& files, int ranks) {
  Deal deal = deal_parts(files, 1, [](int64_t bytes) { return std::max<int64_t>(bytes, 1); });
  deal.resize(static_cast<size_t>(ranks), {.pieces = {}, .bytes = std::vector<Range>(files.size())});
  return deal;
}

int64_t bytes_of(const std::vector<SnapshotFile>& files, const RankShare& share) {
  int64_t sum = 0;
  for (const RankShare::Piece& piece : share.pieces)
    sum += piece.elements.size() * bytes(files[piece.file].tensors[piece.tensor].dtype);
  return sum;
}

void collect(const World& world, const PlacedTensors& tensors, const std::vector<SnapshotFile>& files,
             const Deal& deal, std::byte* memory) {
  const auto me = static_cast<size_t>(world.rank());
  std::vector<Senders> senders;
  for (const PlacedTensors::Buffer& buffer : tensors.buffers()) senders.push_back(senders_of(buffer));
  StagedExchange exchange(world, tensors, memory);
  for (size_t rank = 0; rank < deal.size(); ++rank)
    for_each_source(
        tensors, files, senders, deal[rank], rank,
        [&](size_t buffer, const Range& range, int64_t begin) {
          if (rank == me) tensors.get(buffer, range, memory + begin);
        },
        [&](size_t sender, size_t buffer, const Range& range, int64_t begin) {
          exchange.add(sender, rank, buffer, range, begin);
        });
  exchange.run();
}

FileShare part_of(const std::vector<SnapshotFile>& files, size_t file, const RankShare& share,
                  const std::byte* memory) {
  const SnapshotFile& whole = files[file];
  const Range& mine = share.bytes[file];
  FileShare part;
  const auto add = [&](int64_t begin, std::span<const std::byte> bytes) {
    const Range both = intersection({begin, begin + std::ssize(bytes)}, mine);
    if (both.size() > 0)
      part.parts.push_back({both.begin, bytes.subspan(static_cast<size_t>(both.begin - begin),
                                                      static_cast<size_t>(both.size()))});
  };
  add(0, std::as_bytes(std::span(whole.header)));
  add(std::ssize(whole.header), std::as_bytes(std::span(whole.zeros)));
  TensorSums sums(whole.tensors);
  for (const RankShare::Piece& piece : share.pieces) {
    const StoredTensor& tensor = files[piece.file].tensors[piece.tensor];
    const Range place = tensor.bytes_of(piece.elements);
    const std::span bytes(memory, static_cast<size_t>(place.size()));
    memory += place.size();
    if (piece.file != file) continue;
    sums.take(place.begin, bytes);
    add(place.begin, bytes);
  }
  part.sums = sums.packed(std::vector<bool>(whole.tensors.size(), true));
  return part;
}

}  // namespace lockstep
