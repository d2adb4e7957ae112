// SPDX-License-Identifier: Apache-2.0
#include "tensor/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/memory.h"
#include "tensor/create.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;  // sorts keys, so that a long header is read in O(n log n)
using OrderedJson = nlohmann::ordered_json;

/// Names of dtypes in files, in the order of DType.
constexpr std::array<std::string_view, 5> dtype_names = {"F32", "F64", "BF16", "F16", "I32"};

DType dtype_named(const std::string& name) {
  const auto found = std::ranges::find(dtype_names, name);
  require(found != dtype_names.end(), "dtype ", name, " is not supported");
  return static_cast<DType>(found - dtype_names.begin());
}

int64_t integer(const Json& number) {
  require(number.is_number_integer(), "found ", number.dump(), " instead of an integer");
  return number;
}

/// Returns the offsets at which a tensor's bytes begin and end.
std::pair<int64_t, int64_t> read_offsets(const Json& fields) {
  const Json& offsets = fields.at("data_offsets");
  const int64_t begin = integer(offsets.at(0)), end = integer(offsets.at(1));
  require(begin >= 0 && begin <= end, "invalid data offsets: ", begin, " to ", end);
  return {begin, end};
}

/// Returns the offset at which a tensor's bytes begin and the tensor's entry.
std::pair<int64_t, SafeTensorsEntry> read_entry(const std::string& name, const Json& fields) {
  SafeTensorsEntry entry{.name = name, .dtype = dtype_named(fields.at("dtype")), .shape = {}};
  int64_t tensor_bytes = bytes(entry.dtype);
  for (const Json& extent : fields.at("shape")) {
    entry.shape.append(integer(extent));
    require(!__builtin_mul_overflow(tensor_bytes, integer(extent), &tensor_bytes), "its shape is too large");
  }
  const auto [begin, end] = read_offsets(fields);
  entry.end = end;
  require(entry.end - begin == tensor_bytes, entry.shape, " of ", entry.dtype, " does not match its ",
          entry.end - begin, " bytes of data");
  return {begin, std::move(entry)};
}

constexpr size_t length_bytes = SafeTensorsHeader::length_bytes;
constexpr size_t piece_bytes = size_t{1} << 20;

/// Reads the length of the header's text from the first bytes of a file.
uint64_t text_bytes_in(std::string_view first_bytes) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, first_bytes.data(), length_bytes);
  return bytes;
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

std::string SafeTensorsHeader::read(const std::string& name, const ReadAt& read_at) {
  std::string header = read_at(0, length_bytes);
  require(header.size() == length_bytes, name, " is damaged: it is only ", header.size(), " bytes long");
  const uint64_t bytes = text_bytes_in(header);
  require(bytes <= most_text_bytes, name, " is damaged: its header would have ", bytes, " bytes");
  header += read_at(length_bytes, static_cast<int64_t>(bytes));
  require(header.size() == length_bytes + bytes, name, " is damaged: its header is cut off");
  return header;
}

SafeTensorsHeader SafeTensorsHeader::parse(std::string_view text,
                                           const std::function<bool(const std::string& name)>& ignored) {
  const Json header = Json::parse(text);
  require(header.is_object(), "its header is not a JSON object");
  SafeTensorsHeader parsed;
  std::vector<std::pair<int64_t, SafeTensorsEntry>> found;
  for (const auto& [name, fields] : header.items()) {
    if (name == "__metadata__") {
      parsed.metadata = fields.get<std::map<std::string, std::string>>();
      continue;
    }
    try {
      if (ignored && ignored(name))
        found.push_back(
            {read_offsets(fields).first, {.name = name, .shape = {}, .end = read_offsets(fields).second}});
      else
        found.push_back(read_entry(name, fields));
    } catch (const std::exception& problem) {
      throw UserError(concat("tensor ", name, ": ", problem.what()));
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

/// Removes the header's bytes from the front of `piece`. Returns true once the header is complete.
bool SafeTensorsReader::read_header(std::span<const std::byte>& piece) {
  const auto take_all = [&](uint64_t missing) {
    const std::span<const std::byte> part = piece.first(std::min<uint64_t>(missing, piece.size()));
    header_.append(reinterpret_cast<const char*>(part.data()), part.size());
    piece = piece.subspan(part.size());
    return part.size() == missing;
  };
  if (has_header_) return true;
  if (header_.size() < length_bytes && !take_all(length_bytes - header_.size())) return false;
  const uint64_t text_bytes = text_bytes_in(header_);
  // A wrong file has a random length, of which nothing must be read.
  require(text_bytes <= SafeTensorsHeader::most_text_bytes, "its header would have ", text_bytes, " bytes");
  if (!take_all(text_bytes - (header_.size() - length_bytes))) return false;
  parse_header();
  return has_header_ = true;
}

void SafeTensorsReader::parse_header() {
  parsed_ = SafeTensorsHeader::parse(std::string_view(header_).substr(length_bytes));
  targets_ = places_(parsed_.entries);
  expect(targets_.size() == parsed_.entries.size(), targets_.size(), " places for ", parsed_.entries.size(),
         " tensors");
}

void SafeTensorsReader::take(std::span<const std::byte> piece) {
  if (!read_header(piece)) return;
  while (!piece.empty()) {
    while (next_ < parsed_.entries.size() && parsed_.entries[next_].end == position_) ++next_;
    require(next_ < parsed_.entries.size(), "there are bytes after its last tensor");
    const SafeTensorsEntry& entry = parsed_.entries[next_];
    const int64_t count = std::min(entry.end - position_, static_cast<int64_t>(piece.size()));
    if (const Tensor& target = targets_[next_]) {
      const int64_t offset = position_ - (entry.end - entry.bytes());
      expect(target.view().bytes() == entry.bytes(), entry.name, " has another size than its target tensor");
      copy_bytes(static_cast<std::byte*>(target.view().data) + offset, target.stream(), piece.data(),
                 cpu_stream(), count);
    }
    position_ += count;
    piece = piece.subspan(static_cast<size_t>(count));
  }
}

void SafeTensorsReader::finish() const {
  require(header_.size() >= length_bytes, "it is only ", header_.size(), " bytes long");
  require(has_header_, "its header is cut off");
  for (size_t entry = next_; entry < parsed_.entries.size(); ++entry)
    require(parsed_.entries[entry].end <= position_, "tensor ", parsed_.entries[entry].name,
            ": its data are cut off");
}

SafeTensorsPieces::SafeTensorsPieces(const SafeTensors& content) {
  SafeTensorsHeader header{.entries = {}, .metadata = content.metadata};
  for (const auto& [name, tensor] : content.tensors) {
    header.entries.push_back({.name = name, .dtype = tensor.dtype(), .shape = tensor.shape()});
    tensors_.push_back(to_stream(tensor, cpu_stream()));
  }
  header_ = header.to_bytes();
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

namespace {

/// Reads the file whose pieces `feed` passes to the reader.
SafeTensors read_safetensors(const std::string& origin, const std::function<void(SafeTensorsReader&)>& feed) {
  SafeTensors content;
  SafeTensorsReader reader([&](const std::vector<SafeTensorsEntry>& entries) {
    std::vector<Tensor> tensors;
    for (const SafeTensorsEntry& entry : entries) {
      tensors.push_back(empty(entry.shape, entry.dtype, cpu_stream()));
      content.tensors.push_back({entry.name, tensors.back()});
    }
    return tensors;
  });
  try {
    feed(reader);
    reader.finish();
  } catch (const std::exception& problem) {
    throw UserError(concat(origin, " is not a valid safetensors file: ", problem.what()));
  }
  content.metadata = reader.metadata();
  return content;
}

}  // namespace

SafeTensors from_safetensors(const std::string& bytes, const std::string& origin) {
  return read_safetensors(origin,
                          [&](SafeTensorsReader& reader) { reader.take(std::as_bytes(std::span(bytes))); });
}

SafeTensors load_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good() && !std::filesystem::is_directory(path), "cannot read ", path);
  return read_safetensors(path, [&](SafeTensorsReader& reader) {
    std::string piece(piece_bytes, '\0');
    while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0)
      reader.take(std::as_bytes(std::span(piece.data(), static_cast<size_t>(file.gcount()))));
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
