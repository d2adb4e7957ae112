// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "lockstep/core/text.h"
#include "lockstep/json/json_field.h"
#include "lockstep/tensor/create.h"

namespace lockstep {
namespace {

using Field = JsonField<nlohmann::json>;
using OrderedJson = nlohmann::ordered_json;

/// Adding the size of a header to this does not overflow.
constexpr int64_t most_data_bytes = int64_t{1} << 60;

/// Names of dtypes in files, in the order of DType.
constexpr std::array<std::string_view, 5> dtype_names = {"F32", "F64", "BF16", "F16", "I32"};

DType dtype_named(const std::string& name) {
  const auto found = std::ranges::find(dtype_names, name);
  require(found != dtype_names.end(), "dtype ", shortened(name), " is not supported");
  return static_cast<DType>(found - dtype_names.begin());
}

/// Returns the offset at which a tensor's bytes begin and the tensor's entry. An ignored one may have any
/// dtype and shape.
std::pair<int64_t, SafeTensorsEntry> read_entry(const std::string& name, const Field& fields,
                                                bool is_ignored) {
  const std::vector<Field> offsets = fields["data_offsets"].elements();
  fields["data_offsets"].require_is(offsets.size() == 2, "a begin and an end");
  const int64_t begin = offsets[0].whole<int64_t>(0, most_data_bytes);
  SafeTensorsEntry entry{.name = name, .shape = {}, .end = offsets[1].whole<int64_t>(begin, most_data_bytes)};
  if (is_ignored) return {begin, entry};
  entry.dtype = dtype_named(fields["dtype"].text());
  int64_t tensor_bytes = bytes(entry.dtype);
  const std::vector<Field> shape = fields["shape"].elements();
  fields["shape"].require_is(shape.size() <= Shape::max_rank, "a list of at most ", Shape::max_rank,
                             " dimensions");
  for (const Field& extent : shape) {
    entry.shape.append(extent.whole<int64_t>(0));
    require(!__builtin_mul_overflow(tensor_bytes, extent.whole(), &tensor_bytes), "its shape is too large");
  }
  require(entry.end - begin == tensor_bytes, entry.shape, " of ", entry.dtype, " does not match its ",
          entry.end - begin, " bytes of data");
  return {begin, std::move(entry)};
}

}  // namespace

std::string SafeTensorsHeader::to_bytes() {
  OrderedJson header = OrderedJson::object();
  // Appends to the underlying vector of pairs: ordered_json would search all keys at each insertion.
  OrderedJson::object_t::Container& fields = header.get_ref<OrderedJson::object_t&>();
  if (!metadata.empty()) fields.emplace_back("__metadata__", metadata);
  int64_t offset = 0;
  for (SafeTensorsEntry& entry : entries) {
    entry.end = offset + entry.bytes();
    fields.emplace_back(entry.name,
                        OrderedJson{{"dtype", dtype_names.at(static_cast<size_t>(entry.dtype))},
                                    {"shape", std::vector<int64_t>(entry.shape.begin(), entry.shape.end())},
                                    {"data_offsets", {offset, entry.end}}});
    offset = entry.end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t text_bytes = text.size();
  require(text_bytes <= most_text_bytes, entries.size(), " tensors need a safetensors header of ", text_bytes,
          " bytes; readers accept ", most_text_bytes, ": store fewer tensors in a file");
  return std::string(reinterpret_cast<const char*>(&text_bytes), sizeof(text_bytes)) + text;
}

std::string SafeTensorsHeader::read(const std::string& complaint, const ReadAt& read_at) {
  std::string header = read_at(0, length_bytes);
  require(header.size() == length_bytes, complaint, ": it is only ", header.size(), " bytes long");
  uint64_t bytes = 0;
  std::memcpy(&bytes, header.data(), length_bytes);
  // A file of another kind has a random length, of which nothing must be read.
  require(bytes <= most_text_bytes, complaint, ": its header would have ", bytes, " bytes");
  header += read_at(length_bytes, static_cast<int64_t>(bytes));
  require(header.size() == length_bytes + bytes, complaint, ": its header is cut off");
  return header;
}

SafeTensorsHeader SafeTensorsHeader::parse(std::string_view text,
                                           const std::function<bool(const std::string& name)>& ignored) {
  const Field header(text, "its header", most_text_bytes);
  SafeTensorsHeader parsed;
  std::vector<std::pair<int64_t, SafeTensorsEntry>> found;
  for (const auto& [name, fields] : header.members()) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : fields.members()) parsed.metadata[key] = value.text();
      continue;
    }
    try {
      found.push_back(read_entry(name, fields, ignored && ignored(name)));
    } catch (const UserError& problem) {
      throw UserError(concat("tensor ", shortened(name), ": ", problem.what()));
    }
  }
  std::ranges::stable_sort(found, {},
                           [](const auto& place) { return std::pair(place.first, place.second.end); });
  int64_t end = 0;
  for (auto& [begin, entry] : found) {
    require(begin == end, "tensor ", entry.name, ": data offsets ", begin, " to ", entry.end, ", but byte ",
            end, " must come next");
    end = entry.end;
    if (!ignored || !ignored(entry.name)) parsed.entries.push_back(std::move(entry));
  }
  parsed.data_bytes = end;
  return parsed;
}

std::string to_safetensors(const SafeTensors& content) {
  SafeTensorsHeader header{.entries = {}, .metadata = content.metadata};
  for (const auto& [name, tensor] : content.tensors)
    header.entries.push_back({.name = name, .dtype = tensor.dtype(), .shape = tensor.shape()});
  std::string bytes = header.to_bytes();
  for (const auto& [name, tensor] : content.tensors) {
    const Tensor on_host = to_stream(tensor, cpu_stream());
    const View view = on_host.view();
    bytes.append(static_cast<const char*>(view.data), static_cast<size_t>(view.bytes()));
  }
  return bytes;
}

namespace {

/// Reads bytes of a file, which has as many, from `begin` on.
using ReadInto = std::function<void(int64_t begin, std::span<std::byte> target)>;

SafeTensors read_safetensors(const std::string& origin, int64_t file_bytes, const ReadInto& read) {
  const std::string complaint = origin + " is not a valid safetensors file";
  const std::string header = SafeTensorsHeader::read(complaint, [&](int64_t begin, int64_t count) {
    std::string bytes(static_cast<size_t>(std::clamp<int64_t>(file_bytes - begin, 0, count)), '\0');
    read(begin, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  });
  SafeTensors content;
  try {
    SafeTensorsHeader parsed =
        SafeTensorsHeader::parse(std::string_view(header).substr(SafeTensorsHeader::length_bytes));
    content.metadata = std::move(parsed.metadata);
    int64_t begin = std::ssize(header);
    for (const SafeTensorsEntry& entry : parsed.entries) {
      // A wrong header may describe more than any memory holds.
      require(entry.bytes() <= file_bytes - begin, "tensor ", entry.name, ": its data are cut off");
      const Tensor tensor = empty(entry.shape, entry.dtype, cpu_stream());
      read(begin, {static_cast<std::byte*>(tensor.view().data), static_cast<size_t>(entry.bytes())});
      content.tensors.push_back({entry.name, tensor});
      begin += entry.bytes();
    }
    require(begin == file_bytes, "there are bytes after its last tensor");
  } catch (const std::exception& problem) {
    throw UserError(concat(complaint, ": ", problem.what()));
  }
  return content;
}

}  // namespace

SafeTensors from_safetensors(const std::string& bytes, const std::string& origin) {
  return read_safetensors(origin, std::ssize(bytes), [&](int64_t begin, std::span<std::byte> target) {
    std::ranges::copy(std::as_bytes(std::span(bytes)).subspan(static_cast<size_t>(begin), target.size()),
                      target.begin());
  });
}

SafeTensors load_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  require(file.good() && !std::filesystem::is_directory(path), "cannot read ", path);
  return read_safetensors(path, file.tellg(), [&](int64_t begin, std::span<std::byte> target) {
    file.seekg(begin).read(reinterpret_cast<char*>(target.data()), std::ssize(target));
    require(file.good(), "cannot read ", path);
  });
}

void restore_tensors(const std::vector<NamedTensor>& saved, const std::vector<NamedTensor>& targets,
                     const std::string& what) {
  std::map<std::string, Tensor> by_name;
  for (const NamedTensor& tensor : saved) by_name[tensor.name] = tensor.tensor;
  for (const auto& [name, tensor] : targets) {
    const auto found = by_name.find(name);
    require(found != by_name.end(), what, " has no tensor ", name);
    require(found->second.shape() == tensor.shape() && found->second.dtype() == tensor.dtype(), what, ": ",
            name, " is ", found->second.dtype(), found->second.shape(), ", but in the model it is ",
            tensor.dtype(), tensor.shape());
    copy(found->second, tensor);
  }
}

}  // namespace lockstep
