// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/world.h"
#include "parameters/placed_tensors.h"
#include "snapshot/tensor_sums.h"
#include "store/object_store.h"

namespace lockstep {

/// What a snapshot's files are called. state.json has the checksums of the others and of itself.
inline constexpr const char* model_file = "model.safetensors";
inline constexpr const char* optimizer_file = "optimizer.safetensors";
inline constexpr const char* padding_file = "padding.safetensors";
inline constexpr const char* state_file = "state.json";

/// Whether a file holds values of the model: one of several begins with its number.
inline bool is_model_file(const std::string& key) {
  return key == padding_file || (key.starts_with("model") && key.ends_with(".safetensors"));
}

/// What others who read a snapshot's folder expect of it: a function of the model and its settings.
struct ModelLayout {
  struct Zeros {
    std::string name;
    Shape shape;
  };
  std::map<std::string, int64_t> rows = {};       ///< [tensor]: those after them are in padding_file
  std::vector<Zeros> zeros = {};                  ///< f32 tensors of the file that the model does not have
  std::map<std::string, std::string> texts = {};  ///< [file] that lies beside
  int64_t most_bytes = int64_t{2} << 30;          ///< of the model's tensors in one file; more are cut up
};

/// A safetensors file: what it begins with, and where its tensors lie. Of a snapshot that is written all of
/// it is a function of names and shapes.
struct SnapshotFile {
  std::string key;
  std::string header;                 ///< with its length in front; of a text all of it
  std::string zeros = {};             ///< the first tensors, which no buffer has
  std::vector<StoredTensor> tensors;  ///< in the order of their bytes
  std::vector<size_t> buffers = {};   ///< [tensor] of PlacedTensors
  int64_t bytes = 0;

  static constexpr size_t no_buffer = static_cast<size_t>(-1);
  /// Tensors before it are zeros.
  size_t first_held() const { return static_cast<size_t>(std::ranges::count(buffers, no_buffer)); }
};

/// The files that hold these tensors, the model's first, then the optimizer's, and the texts last.
std::vector<SnapshotFile> files_of(const PlacedTensors& tensors, const ModelLayout& layout = {});

/// What one rank writes of a snapshot's files.
struct RankShare {
  /// Elements of one tensor's buffer, in whole blocks.
  struct Piece {
    size_t file = 0;
    size_t tensor = 0;
    Range elements;
  };
  std::vector<Piece> pieces;  ///< in the order of files and of their bytes
  std::vector<Range> bytes;   ///< [file]: what it writes lies in there
};

/// How a snapshot's bytes come to the ranks that write them: a function of shapes, placement and number of
/// ranks.
using Deal = std::vector<RankShare>;

/// Each block is written by a rank that holds it; where several do they take equal parts. Rank 0 has the
/// headers.
Deal deal_to_holders(const PlacedTensors& tensors, const std::vector<SnapshotFile>& files);
/// Each rank writes parts of `part_bytes(bytes of the file)`, whoever holds them.
Deal deal_parts(const std::vector<SnapshotFile>& files, int ranks,
                const std::function<int64_t(int64_t)>& part_bytes);
/// Rank 0 writes everything.
Deal deal_to_first(const std::vector<SnapshotFile>& files, int ranks);

/// How much memory a rank's pieces take.
int64_t bytes_of(const std::vector<SnapshotFile>& files, const RankShare& share);

/// Copies this rank's pieces to `memory`, one behind the other. What it does not hold comes from those that
/// do. All ranks call it.
void collect(const World& world, const PlacedTensors& tensors, const std::vector<SnapshotFile>& files,
             const Deal& deal, std::byte* memory);

/// What a rank writes of a file, with `memory` as collect() left it, and the checksums of its blocks.
struct FileShare {
  std::vector<ObjectPart> parts;
  std::string sums;  ///< for TensorSums::add()
};
FileShare part_of(const std::vector<SnapshotFile>& files, size_t file, const RankShare& share,
                  const std::byte* memory);

}  // namespace lockstep
