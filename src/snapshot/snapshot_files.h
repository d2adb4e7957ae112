// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/parameters/model_layout.h"
#include "lockstep/parameters/placed_tensors.h"
#include "lockstep/snapshot/tensor_sums.h"
#include "lockstep/store/object_store.h"

namespace lockstep {

/// The names of a snapshot's files. state.json has the checksums of the others and of itself.
inline constexpr const char* model_file = "model.safetensors";
inline constexpr const char* optimizer_file = "optimizer.safetensors";
inline constexpr const char* padding_file = "padding.safetensors";
inline constexpr const char* state_file = "state.json";

/// Returns whether a file holds values of the model. A split model has model-00001-of-00002.safetensors, ...
inline bool is_model_file(const std::string& key) {
  return key == padding_file || (key.starts_with("model") && key.ends_with(".safetensors"));
}

/// Texts in the folder of a model, under the names that Hugging Face gives them.
inline constexpr std::array model_text_files = {
    "config.json",        "generation_config.json",  "tokenizer.json", "tokenizer_config.json",
    "vocab.json",         "special_tokens_map.json", "merges.txt",     "added_tokens.json",
    "chat_template.jinja"};

/// Returns whether this program gives the name to a file of a snapshot. Other texts have names of their
/// model.
bool is_snapshot_file(const std::string& key);

/// A file of a snapshot. Names and shapes alone determine its header and the positions of its tensors.
struct SnapshotFile {
  std::string key;
  std::string header;                 ///< with its length in front; the whole content of a text file
  std::string zeros = {};             ///< bytes of the first tensors, which are in no buffer
  std::vector<StoredTensor> tensors;  ///< in the order of their bytes
  std::vector<size_t> buffers = {};   ///< [tensor]: index of its buffer in PlacedTensors
  int64_t bytes = 0;

  static constexpr size_t no_buffer = static_cast<size_t>(-1);
  /// Returns the index of the first tensor that is in a buffer. Tensors before it are zeros.
  size_t first_held() const { return static_cast<size_t>(std::ranges::count(buffers, no_buffer)); }
};

/// Returns the files that hold these tensors: first the model's, then the optimizer's, last the texts.
std::vector<SnapshotFile> files_of(const PlacedTensors& tensors, const ModelLayout& layout = {});

/// The share of a snapshot's files that one rank writes.
struct RankShare {
  /// A range of elements of one tensor, in whole blocks of its buffer.
  struct Piece {
    size_t file = 0;
    size_t tensor = 0;
    Range elements;
  };
  std::vector<Piece> pieces;  ///< in the order of files and of their bytes
  std::vector<Range> bytes;   ///< [file]: the rank writes only bytes within this range
};

/// The bytes that each rank writes, [rank]: a function of shapes, placement and number of ranks.
using Deal = std::vector<RankShare>;

/// Assigns blocks to ranks that hold them, in equal parts if several do. Rank 0 writes the headers.
Deal deal_to_holders(const PlacedTensors& tensors, const std::vector<SnapshotFile>& files);
/// Assigns parts of `part_bytes(bytes of the file)` to each rank, whichever ranks hold them.
Deal deal_parts(const std::vector<SnapshotFile>& files, int ranks,
                const std::function<int64_t(int64_t)>& part_bytes);
/// Assigns everything to rank 0.
Deal deal_to_first(const std::vector<SnapshotFile>& files, int ranks);

/// Returns the memory that a rank's pieces take, in bytes.
int64_t bytes_of(const std::vector<SnapshotFile>& files, const RankShare& share);

/// The memory that collect() takes at most besides the pieces.
inline constexpr int64_t most_staged_bytes = int64_t{8} << 20;

/// Copies this rank's pieces to `memory`, one after another. Other ranks send pieces that this rank does not
/// hold. All ranks call it.
void collect(const World& world, const PlacedTensors& tensors, const std::vector<SnapshotFile>& files,
             const Deal& deal, std::byte* memory);

/// The parts of a file that a rank writes, and the checksums of its blocks.
struct FileShare {
  std::vector<ObjectPart> parts;
  std::string sums;  ///< for TensorSums::add()
};
/// Returns what this rank writes of a file. `memory` is as collect() left it.
FileShare part_of(const std::vector<SnapshotFile>& files, size_t file, const RankShare& share,
                  const std::byte* memory);

}  // namespace lockstep
