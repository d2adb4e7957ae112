// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/core/dtype.h"
#include "lockstep/core/shape.h"
#include "lockstep/models/family.h"
#include "lockstep/store/object_store.h"

namespace lockstep {

/// The names of files in a Hugging Face folder. `model_file` is the name of model.safetensors.
inline constexpr const char* config_file = "config.json";
inline constexpr const char* index_file = "model.safetensors.index.json";

/// A Hugging Face folder of a language model from an untrusted source: its config.json and safetensors
/// headers. It has one file or several with an index. Names can lack the prefix of the architecture. Values
/// are fp32, bf16 or fp16. A tied head can be stored next to the embedding, and is untied if its values
/// differ.
class ModelFolder {
 public:
  /// The position and type of a stored tensor.
  struct TensorLocation {
    std::string file;
    int64_t begin = 0;  ///< offset of its first byte in the file
    DType dtype = DType::f32;
    Shape shape;
  };

  /// Reads config.json and the headers, and compares a head with the embedding that it is tied to. Throws
  /// UserError with file and place if something is damaged, missing, superfluous or unsupported. A shape that
  /// contradicts config.json is also an error.
  explicit ModelFolder(std::shared_ptr<ObjectReader> store);

  const ModelDescription& description() const { return model_; }
  /// Returns the locations of tensors by their names in Family::stored_tensors().
  const std::map<std::string, TensorLocation>& tensors() const { return tensors_; }
  /// Identifies the model: a hash of config.json, the headers and the first 64 KiB of every tensor.
  std::string hash() const;
  /// Returns the content of a text file in the folder, or nothing if it is missing.
  std::optional<std::string> text(const std::string& file) const;
  /// Reads elements [begin, end) of a tensor as fp32 in the file's order. Throws UserError for a short file.
  std::string read(const TensorLocation& place, int64_t begin, int64_t end) const;
  /// Returns the folder's name for messages.
  std::string name() const { return store_->name_of(""); }

 private:
  using WeightMap = std::map<std::string, std::string>;  ///< [tensor]: its file

  std::optional<WeightMap> read_index() const;
  void read_header(const std::string& file, const WeightMap* index);
  bool is_ignored(const std::string& tensor) const { return model_.family->is_ignored(tensor, model_); }
  void add(const std::string& name, TensorLocation place);
  void resolve_head();
  bool have_equal_values(const TensorLocation& one, const TensorLocation& other) const;
  void require_all_tensors();
  std::string bytes_at(const std::string& file, int64_t begin, int64_t bytes) const;

  std::shared_ptr<ObjectReader> store_;
  std::string described_;  ///< config.json and all headers
  ModelDescription model_;
  std::map<std::string, TensorLocation> tensors_;
};

}  // namespace lockstep
