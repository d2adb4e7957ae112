// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "core/shape.h"
#include "huggingface/gpt2_config.h"
#include "store/object_store.h"

namespace lockstep {

/// A Hugging Face folder of a GPT-2: what config.json and the headers of its safetensors files say, made by
/// anybody. It may have one file or several with an index, names with or without "transformer.", values in
/// fp32, bf16 or fp16, a head beside the table that it is tied to, and buffers of masks, which are ignored.
class ModelFolder {
 public:
  /// Where a tensor lies.
  struct TensorLocation {
    std::string file;
    int64_t begin = 0;  ///< of its bytes
    DType dtype = DType::f32;
    Shape shape;
  };

  /// Reads what stands before tensors. Throws UserError that names file and place of what is damaged, missing
  /// or too many, of another shape than config.json says, or not computed here.
  explicit ModelFolder(std::shared_ptr<ObjectStore> store);

  const Gpt2Config& config() const { return config_; }
  /// [name of gpt2_tensors()]
  const std::map<std::string, TensorLocation>& tensors() const { return tensors_; }
  /// Tells it from others: of its config.json, its headers, and the first 64 KiB of every tensor.
  std::string hash() const;
  /// A text that lies beside, if there is one.
  std::optional<std::string> text(const std::string& file) const;
  /// Elements [begin, end) of a tensor as fp32, in the order of the file. UserError where there are fewer.
  std::string read(const TensorLocation& place, int64_t begin, int64_t end) const;
  /// For a person.
  std::string name() const { return store_->name_of(""); }

 private:
  using WeightMap = std::map<std::string, std::string>;  ///< [tensor]: its file

  std::string needed_text(const std::string& file) const;
  std::optional<WeightMap> read_index() const;
  void read_header(const std::string& file, const WeightMap* index);
  void add(const std::string& name, TensorLocation place);
  void require_all_tensors();
  std::string bytes_at(const std::string& file, int64_t begin, int64_t bytes) const;

  std::shared_ptr<ObjectStore> store_;
  std::string described_;  ///< config.json and all headers
  Gpt2Config config_;
  std::map<std::string, TensorLocation> tensors_;
};

}  // namespace lockstep
