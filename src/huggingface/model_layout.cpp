// SPDX-License-Identifier: Apache-2.0
#include "lockstep/huggingface/model_layout.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/parameters/parameter_space.h"
#include "lockstep/store/object_store.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/safetensors.h"
#include "lockstep/tokenizer/write_tokenizer_json.h"

namespace lockstep {
namespace {

/// A file of tensors of one dtype. write() converts one tensor at a time from a model in fp32.
class ConvertedFile {
 public:
  ConvertedFile(const SnapshotFile& file, DType dtype) : file_(file), dtype_(dtype) {
    SafeTensorsHeader header{.entries = {}, .metadata = {{"format", "pt"}}};
    for (const StoredTensor& tensor : file.tensors)
      header.entries.push_back({.name = tensor.name, .dtype = dtype, .shape = tensor.shape});
    header_ = file.tensors.empty() ? file.header : header.to_bytes();
    bytes_ = std::ssize(header_);
    for (const StoredTensor& tensor : file.tensors) bytes_ += tensor.shape.elements() * bytes(dtype);
  }

  PlannedObject planned() const { return {file_.key, bytes_}; }

  /// Calls write(part) for all parts of the file, in order.
  template <class Write>
  void write(const PlacedTensors& model, Write write) const {
    write({0, std::as_bytes(std::span(header_))});
    int64_t begin = std::ssize(header_);
    for (size_t t = 0; t < file_.tensors.size(); ++t) {
      const StoredTensor& tensor = file_.tensors[t];
      const Tensor values = empty(tensor.shape, DType::f32, cpu_stream());
      if (file_.buffers[t] == SnapshotFile::no_buffer)
        fill(values, 0.0);
      else
        model.get(file_.buffers[t], tensor.place, static_cast<std::byte*>(values.view().data));
      const View stored = convert(values, dtype_).view();
      write({begin, {static_cast<const std::byte*>(stored.data), static_cast<size_t>(stored.bytes())}});
      begin += stored.bytes();
    }
  }

 private:
  const SnapshotFile& file_;
  DType dtype_;
  std::string header_;
  int64_t bytes_ = 0;
};

/// Returns the index of several files with the total size for another dtype.
std::string index_for(const std::string& text, DType dtype) {
  nlohmann::ordered_json index = nlohmann::ordered_json::parse(text);
  nlohmann::ordered_json& total = index["metadata"]["total_size"];
  total = total.get<int64_t>() / bytes(DType::f32) * bytes(dtype);
  return index.dump(2) + "\n";
}

void write_folder(const std::string& path, const PlacedTensors& model, const ModelLayout& layout,
                  DType dtype) {
  namespace fs = std::filesystem;
  const fs::path place = fs::absolute(path).lexically_normal();
  const fs::path folder = place.has_filename() ? place : place.parent_path();
  require(!fs::exists(folder), path,
          " exists already, and nothing is overwritten: choose another folder, or remove it");
  FolderStore store(folder.parent_path().string());
  const std::string group = folder.filename().string();
  std::vector<SnapshotFile> files = files_of(model, layout);
  // A converted folder has neither optimizer nor padding. config.json is written last.
  std::erase_if(files, [](const SnapshotFile& file) {
    return file.key == optimizer_file || file.key == padding_file || file.key == config_file;
  });
  std::vector<ConvertedFile> converted;
  std::vector<PlannedObject> planned;
  for (SnapshotFile& file : files) {
    if (file.key == index_file) file.header = index_for(file.header, dtype);
    converted.emplace_back(file, dtype);
    planned.push_back(converted.back().planned());
  }
  const std::string& config = layout.texts.at(config_file);
  const std::string begun = store.begin_group(group, planned, config_file);
  try {
    std::vector<std::string> written;
    for (const ConvertedFile& file : converted)
      file.write(model, [&](const ObjectPart& part) {
        written.push_back(store.write_parts(group, begun, file.planned().key, std::array{part}));
      });
    store.end_group(group, begun, written,
                    {.key = config_file, .pieces = {std::as_bytes(std::span(config))}});
  } catch (...) {
    store.drop_group(group, begun);
    throw;
  }
}

}  // namespace

ModelLayout layout_of(const LanguageModel& model, bool cuts_to_tokenizer, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return model.layout({});
  TokenIds ids{.beginning_of_text = tokenizer->beginning_of_text(), .end_of_text = tokenizer->end_of_text()};
  if (cuts_to_tokenizer) ids.count = tokenizer->vocabulary_size();
  if (!ids.beginning_of_text) ids.beginning_of_text = ids.end_of_text;
  ModelLayout layout = model.layout(ids);
  layout.texts["tokenizer.json"] = tokenizer->to_json();
  layout.texts["tokenizer_config.json"] = tokenizer_config_json(*tokenizer, model.context_length());
  return layout;
}

void convert_model(const SourceModel& source, const std::string& folder, DType dtype, int64_t most_bytes) {
  const ModelDescription& described = source.description();
  const std::shared_ptr<const Tokenizer> tokenizer = source.is_snapshot() ? tokenizer_of(source) : nullptr;
  const std::unique_ptr<LanguageModel> model = load_model(source);
  ModelLayout layout = layout_of(*model, !source.has_own_vocabulary(), tokenizer.get());
  if (!source.is_snapshot()) {
    layout.texts = source.texts();
    layout.texts[config_file] = described.family->config_json(described, DType::f32);
    layout.texts.try_emplace("generation_config.json", generation_config_json(described.ids));
  }
  std::string& config = layout.texts[config_file];
  config = described.family->config_json(described.family->read_config(config, config_file), dtype);
  layout.most_bytes = most_bytes / bytes(dtype) * bytes(DType::f32);
  const ParameterSpace space(model->parameters());
  const SpaceTensors tensors(space, nullptr, 1);
  write_folder(folder, tensors, layout, dtype);
}

}  // namespace lockstep
