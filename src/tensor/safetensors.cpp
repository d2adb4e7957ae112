// SPDX-License-Identifier: Apache-2.0
#include "tensor/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tensor/create.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

struct DTypeName {
  DType dtype;
  const char* name;
};
constexpr DTypeName dtype_names[] = {{DType::f32, "F32"},
                                     {DType::f64, "F64"},
                                     {DType::bf16, "BF16"},
                                     {DType::f16, "F16"},
                                     {DType::i32, "I32"}};

const char* safetensors_name(DType dtype) {
  for (const DTypeName& entry : dtype_names)
    if (entry.dtype == dtype) return entry.name;
  throw Error("a dtype that safetensors cannot hold");
}

DType dtype_named(const std::string& name) {
  for (const DTypeName& entry : dtype_names)
    if (name == entry.name) return entry.dtype;
  throw UserError("dtype " + name + " is not supported");
}

Tensor read_tensor(const Json& entry, const char* data, uint64_t data_bytes) {
  const DType dtype = dtype_named(entry.at("dtype"));
  Shape shape;
  int64_t tensor_bytes = bytes(dtype);
  for (int64_t extent : entry.at("shape")) {
    shape.append(extent);
    require(!__builtin_mul_overflow(tensor_bytes, extent, &tensor_bytes), "its shape is too large");
  }
  const uint64_t begin = entry.at("data_offsets").at(0);
  const uint64_t end = entry.at("data_offsets").at(1);
  require(begin <= end && end <= data_bytes, "data offsets ", begin, " to ", end, " lie outside ", data_bytes,
          " bytes");
  require(end - begin == static_cast<uint64_t>(tensor_bytes), shape, " of ", dtype, " in ", end - begin,
          " bytes");
  const Tensor tensor = empty(shape, dtype, cpu_stream());
  if (end > begin) std::memcpy(tensor.view().data, data + begin, end - begin);
  return tensor;
}

SafeTensors parse(const std::string& bytes) {
  uint64_t header_bytes = 0;
  require(bytes.size() >= sizeof(header_bytes), "it is only ", bytes.size(), " bytes long");
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  require(header_bytes <= bytes.size() - sizeof(header_bytes), "its header is cut off");
  const size_t data_begin = sizeof(header_bytes) + header_bytes;
  const Json header =
      Json::parse(bytes.begin() + sizeof(header_bytes), bytes.begin() + static_cast<int64_t>(data_begin));
  require(header.is_object(), "its header is not a JSON object");
  SafeTensors content;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      content.metadata = entry.get<std::map<std::string, std::string>>();
      continue;
    }
    try {
      content.tensors.push_back(
          {name, read_tensor(entry, bytes.data() + data_begin, bytes.size() - data_begin)});
    } catch (const std::exception& problem) {
      throw UserError(concat("tensor ", name, ": ", problem.what()));
    }
  }
  return content;
}

}  // namespace

SafeTensorsPieces::SafeTensorsPieces(const SafeTensors& content) {
  Json header = Json::object();
  if (!content.metadata.empty()) header["__metadata__"] = content.metadata;
  int64_t offset = 0;
  for (const auto& [name, tensor] : content.tensors) {
    const int64_t size = tensor.view().bytes();
    header[name] = {{"dtype", safetensors_name(tensor.dtype())},
                    {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
                    {"data_offsets", {offset, offset + size}}};
    offset += size;
    tensors_.push_back(to_stream(tensor, cpu_stream()));
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t header_bytes = text.size();
  header_.assign(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  header_ += text;
}

std::vector<std::span<const std::byte>> SafeTensorsPieces::pieces() const {
  std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(header_))};
  for (const Tensor& tensor : tensors_)
    pieces.emplace_back(static_cast<const std::byte*>(tensor.view().data),
                        static_cast<size_t>(tensor.view().bytes()));
  return pieces;
}

std::string to_safetensors(const SafeTensors& content) {
  const SafeTensorsPieces file(content);
  std::string bytes;
  for (const auto& piece : file.pieces())
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  return bytes;
}

SafeTensors from_safetensors(const std::string& bytes, const std::string& origin) {
  try {
    return parse(bytes);
  } catch (const std::exception& problem) {
    throw UserError(concat(origin, " is not a valid safetensors file: ", problem.what()));
  }
}

SafeTensors load_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good() && !std::filesystem::is_directory(path), "cannot read ", path);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  return from_safetensors(bytes, path);
}

void restore_tensors(const std::vector<NamedTensor>& saved, const std::vector<NamedTensor>& targets,
                     const std::string& what) {
  std::map<std::string, Tensor> by_name;
  for (const NamedTensor& tensor : saved) by_name[tensor.name] = tensor.tensor;
  for (const auto& [name, tensor] : targets) {
    const auto found = by_name.find(name);
    require(found != by_name.end(), what, " has no tensor ", name);
    require(found->second.shape() == tensor.shape() && found->second.dtype() == tensor.dtype(), what, ": ",
            name, " is ", found->second.dtype(), found->second.shape(), " where the model has ",
            tensor.dtype(), tensor.shape());
    copy(found->second, tensor);
  }
}

}  // namespace lockstep
