// SPDX-License-Identifier: Apache-2.0
#include "lockstep/huggingface/model_folder.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/log.h"
#include "lockstep/core/stream.h"
#include "lockstep/json/json_field.h"
#include "lockstep/snapshot/snapshot_files.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/safetensors.h"

namespace lockstep {
namespace {

constexpr int64_t most_text_bytes = int64_t{128} << 20;
constexpr int64_t sampled_bytes = 65536;
constexpr int64_t compared_elements = int64_t{1} << 20;

/// Returns whether a name is that of a safetensors file in the folder. A path out of the folder is refused.
bool is_plain_name(const std::string& name) {
  const bool is_plain =
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
      std::string::npos;
  return is_plain && !name.starts_with('.') && name.ends_with(".safetensors");
}

/// Converts elements of any float dtype to fp32.
std::string as_f32(std::string bytes, DType dtype) {
  if (dtype == DType::f32) return bytes;
  const NoGrad no_grad;
  const int64_t count = std::ssize(bytes) / lockstep::bytes(dtype);
  const Tensor stored = empty({count}, dtype, cpu_stream());
  std::memcpy(stored.view().data, bytes.data(), bytes.size());
  const Tensor wide = convert(stored, DType::f32);
  return {static_cast<const char*>(wide.view().data), static_cast<size_t>(wide.view().bytes())};
}

}  // namespace

ModelFolder::ModelFolder(std::shared_ptr<ObjectReader> store) : store_(std::move(store)) {
  const std::optional<std::string> json = text(config_file);
  require(json.has_value(), store_->name_of(config_file), " is missing");
  model_ = read_model_config(*json, store_->name_of(config_file));
  described_ = *json;
  const std::optional<WeightMap> index = store_->exists(model_file) ? std::nullopt : read_index();
  if (!index) {
    read_header(model_file, nullptr);
  } else {
    std::set<std::string> files;
    for (const auto& [tensor, file] : *index) files.insert(file);
    for (const std::string& file : files) read_header(file, &*index);
    for (const auto& [tensor, file] : *index)
      require(is_ignored(tensor) || tensors_.contains(model_.family->stored_name(tensor)),
              store_->name_of(file), ": there is no tensor ", tensor, ", which ", index_file,
              " expects there");
  }
  resolve_head();
  require_all_tensors();
}

std::optional<std::string> ModelFolder::text(const std::string& file) const {
  std::optional<std::string> found = store_->get(file, 0, most_text_bytes);
  require(!found || std::ssize(*found) < most_text_bytes, store_->name_of(file), " is too long");
  return found;
}

std::optional<ModelFolder::WeightMap> ModelFolder::read_index() const {
  const std::optional<std::string> found = text(index_file);
  require(found.has_value(), store_->name_of(model_file), " is missing, and so is ", index_file,
          "; other formats (pytorch_model.bin) are not supported");
  const auto files =
      JsonField<nlohmann::json>(*found, store_->name_of(index_file), most_text_bytes)["weight_map"];
  files.require_is(files.json().is_object() && !files.json().empty(), "an object of tensors and their files");
  WeightMap map;
  for (const auto& [tensor, file] : files.members()) {
    file.require_is(file.json().is_string() && is_plain_name(file.text()),
                    "the name of a safetensors file in this folder");
    map[tensor] = file.text();
  }
  return map;
}

std::string ModelFolder::bytes_at(const std::string& file, int64_t begin, int64_t bytes) const {
  std::optional<std::string> found = store_->get(file, begin, bytes);
  require(found.has_value(), store_->name_of(file), " is missing");
  require(std::ssize(*found) == bytes, store_->name_of(file), " is damaged: it is truncated at byte ",
          begin + std::ssize(*found));
  return std::move(*found);
}

void ModelFolder::read_header(const std::string& file, const WeightMap* index) {
  const std::string bytes =
      SafeTensorsHeader::read(store_->name_of(file) + " is damaged",
                              [&](int64_t begin, int64_t count) { return bytes_at(file, begin, count); });
  const std::string header = bytes.substr(SafeTensorsHeader::length_bytes);
  const int64_t data = std::ssize(bytes);
  described_ += header;
  try {
    const SafeTensorsHeader parsed =
        SafeTensorsHeader::parse(header, [&](const std::string& name) { return is_ignored(name); });
    for (const SafeTensorsEntry& entry : parsed.entries) {
      if (index != nullptr) {
        const auto told = index->find(entry.name);
        require(told != index->end() && told->second == file, "tensor ", entry.name, ": ", index_file,
                " does not expect it there");
      }
      add(entry.name, {file, data + entry.end - entry.bytes(), entry.dtype, entry.shape});
    }
    const std::optional<std::string> last =
        store_->get(file, std::max<int64_t>(0, data + parsed.data_bytes - 1), 2);
    require(last && std::ssize(*last) >= 1, "its data is truncated");
    require(std::ssize(*last) == 1, "there are bytes after its last tensor");
  } catch (const UserError& problem) {
    throw UserError(concat(store_->name_of(file), ": ", problem.what()));
  } catch (const std::exception& problem) {
    throw UserError(concat(store_->name_of(file), " is damaged: ", problem.what()));
  }
}

void ModelFolder::add(const std::string& name, TensorLocation place) {
  const bool is_float = place.dtype == DType::f32 || place.dtype == DType::bf16 || place.dtype == DType::f16;
  require(is_float, "tensor ", name, ": dtype ", place.dtype,
          " is not supported; it must be f32, bf16 or f16");
  require(tensors_.emplace(model_.family->stored_name(name), std::move(place)).second, "tensor ", name,
          ": it appears twice, with and without its prefix");
}

/// Unties a head that is stored with other values than the embedding, as transformers does. A tied head is
/// stored once, under either name, or twice.
void ModelFolder::resolve_head() {
  const Family::Head names = model_.family->head(model_);
  const std::string head_name = model_.family->stored_name(names.head);
  const std::string embedding_name = model_.family->stored_name(names.table);
  const auto head = tensors_.find(head_name), embedding = tensors_.find(embedding_name);
  if (!names.is_tied || head == tensors_.end()) return;
  if (embedding != tensors_.end() && !have_equal_values(head->second, embedding->second)) {
    log_warning(concat(store_->name_of(config_file), " ties the head to the embedding, but ",
                       head->second.file, " has other values for ", head_name,
                       ": the model keeps both, untied"));
    model_.options.tie_weights = false;
    return;
  }
  tensors_.try_emplace(embedding_name, head->second);
  tensors_.erase(head_name);
}

bool ModelFolder::have_equal_values(const TensorLocation& one, const TensorLocation& other) const {
  if (one.shape != other.shape) return false;
  const int64_t count = one.shape.elements();
  for (int64_t begin = 0; begin < count; begin += compared_elements) {
    const int64_t end = std::min(count, begin + compared_elements);
    if (read(one, begin, end) != read(other, begin, end)) return false;
  }
  return true;
}

void ModelFolder::require_all_tensors() {
  const std::map<std::string, Shape> expected = model_.family->stored_tensors(model_);
  for (const auto& [name, place] : tensors_) {
    const auto shape = expected.find(name);
    require(shape != expected.end(), store_->name_of(place.file), ": tensor ", name,
            " does not belong to the ", model_.family->title(), " that ", config_file, " describes");
    require(place.shape == shape->second, store_->name_of(place.file), ": tensor ", name, " has the shape ",
            place.shape, ", but ", config_file, " needs ", shape->second);
  }
  for (const auto& [name, shape] : expected)
    require(tensors_.contains(name), store_->name_of(model_file), ": there is no tensor ", name);
}

std::string ModelFolder::read(const TensorLocation& place, int64_t begin, int64_t end) const {
  const int64_t size = lockstep::bytes(place.dtype);
  return as_f32(bytes_at(place.file, place.begin + begin * size, (end - begin) * size), place.dtype);
}

std::string ModelFolder::hash() const {
  std::string sampled = described_;
  for (const auto& [name, place] : tensors_) {
    const int64_t bytes = place.shape.elements() * lockstep::bytes(place.dtype);
    sampled += bytes_at(place.file, place.begin, std::min(bytes, sampled_bytes));
  }
  return hash_text(hash_of(sampled));
}

}  // namespace lockstep
