// SPDX-License-Identifier: Apache-2.0
#include "lockstep/snapshot/tensor_sums.h"

#include <algorithm>
#include <cstring>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr int64_t block_elements = ParameterLayout::block;

size_t blocks_of(const StoredTensor& tensor) {
  const Range& place = tensor.place;
  return place.size() == 0 ? 0
                           : static_cast<size_t>((place.end + block_elements - 1) / block_elements -
                                                 place.begin / block_elements);
}

void append(std::string& text, uint64_t number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// Removes a number from the front of a text and returns it.
uint64_t take_number(std::string_view& text) {
  uint64_t number = 0;
  expect(text.size() >= sizeof number, "the data from another rank are cut off");
  std::memcpy(&number, text.data(), sizeof number);
  text.remove_prefix(sizeof number);
  return number;
}

}  // namespace

Range StoredTensor::bytes_of(Range elements) const {
  const int64_t size = lockstep::bytes(dtype);
  return {begin + (elements.begin - place.begin) * size, begin + (elements.end - place.begin) * size};
}

Range StoredTensor::elements_of(Range bytes) const {
  const int64_t size = lockstep::bytes(dtype);
  return {place.begin + (bytes.begin - begin) / size, place.begin + (bytes.end - begin + size - 1) / size};
}

Range StoredTensor::whole_blocks(Range elements) const {
  return intersection({elements.begin / block_elements * block_elements,
                       (elements.end + block_elements - 1) / block_elements * block_elements},
                      place);
}

TensorSums::TensorSums(const std::vector<StoredTensor>& tensors) : tensors_(tensors) {
  for (const StoredTensor& tensor : tensors) sums_.emplace_back().blocks.resize(blocks_of(tensor));
}

void TensorSums::set(size_t tensor, size_t index, uint64_t hash) {
  std::optional<uint64_t>& known = sums_.at(tensor).blocks.at(index);
  sums_[tensor].is_disputed |= known.value_or(hash) != hash;
  if (!known) known = hash;
}

void TensorSums::take(int64_t begin, std::span<const std::byte> bytes) {
  auto tensor =
      std::ranges::upper_bound(tensors_, begin, {}, [](const StoredTensor& one) { return one.end(); });
  while (!bytes.empty() && tensor != tensors_.end()) {
    if (const int64_t before = tensor->begin - begin; before > 0) {  // bytes of the header
      const int64_t skipped = std::min<int64_t>(before, std::ssize(bytes));
      bytes = bytes.subspan(static_cast<size_t>(skipped));
      begin += skipped;
      continue;
    }
    if (tensor->bytes() == 0 || begin == tensor->end()) {
      ++tensor;
      continue;
    }
    const int64_t element = tensor->elements_of({begin, begin}).begin;
    const Range whole = tensor->bytes_of(tensor->whole_blocks({element, element + 1}));
    const auto count = static_cast<size_t>(std::min<int64_t>(whole.end - begin, std::ssize(bytes)));
    if (begin == whole.begin) running_.reset();
    if (begin == whole.begin || begin == next_) {
      running_.add(bytes.first(count));
      next_ = begin + static_cast<int64_t>(count);
      if (next_ == whole.end)
        set(static_cast<size_t>(tensor - tensors_.begin()),
            static_cast<size_t>(element / block_elements - tensor->place.begin / block_elements),
            running_.value());
    }
    begin += static_cast<int64_t>(count);
    bytes = bytes.subspan(count);
  }
}

std::string TensorSums::packed(const std::vector<bool>& wanted) const {
  std::string text;
  for (size_t tensor = 0; tensor < sums_.size(); ++tensor) {
    const Sum& sum = sums_[tensor];
    if (!wanted.at(tensor)) continue;
    for (size_t begin = 0; begin < sum.blocks.size(); ++begin) {
      if (!sum.blocks[begin]) continue;
      size_t end = begin;
      while (end < sum.blocks.size() && sum.blocks[end]) ++end;
      for (const uint64_t number : {tensor, begin, end}) append(text, number);
      for (; begin < end; ++begin) append(text, *sum.blocks[begin]);
    }
  }
  return text;
}

void TensorSums::add(const std::string& packed) {
  for (std::string_view text = packed; !text.empty();) {
    const uint64_t tensor = take_number(text), begin = take_number(text), end = take_number(text);
    for (uint64_t index = begin; index < end; ++index) set(tensor, index, take_number(text));
  }
}

std::optional<uint64_t> TensorSums::of(size_t tensor) const {
  const Sum& sum = sums_.at(tensor);
  std::string hashes;
  for (const std::optional<uint64_t>& hash : sum.blocks) {
    if (!hash || sum.is_disputed) return std::nullopt;
    append(hashes, *hash);
  }
  return hash_of(hashes);
}

std::string pack(std::span<const std::string> texts) {
  std::string packed;
  for (const std::string& text : texts) {
    append(packed, text.size());
    packed += text;
  }
  return packed;
}

std::vector<std::string> unpack(const std::string& packed) {
  std::vector<std::string> texts;
  for (std::string_view rest = packed; !rest.empty();) {
    const uint64_t size = take_number(rest);
    expect(size <= rest.size(), "the data from another rank are cut off");
    texts.emplace_back(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  return texts;
}

}  // namespace lockstep
