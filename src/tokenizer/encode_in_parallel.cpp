// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/encode_in_parallel.h"

#include <algorithm>
#include <atomic>

#include "core/error.h"

namespace lockstep {
namespace {

std::vector<std::string_view> safe_parts(const Tokenizer& tokenizer, std::string_view text, size_t bytes) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t near = begin + std::min(bytes, text.size() - begin);
    const size_t end = near == text.size() ? near : tokenizer.safe_cut(text, near);
    parts.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return parts;
}

}  // namespace

std::vector<int32_t> encode_in_parallel(const Tokenizer& tokenizer, std::string_view text,
                                        std::string_view source, ThreadPool& pool, size_t part_bytes) {
  expect(part_bytes > 0, "part_bytes must be above 0");
  const std::vector<std::string_view> parts = safe_parts(tokenizer, text, part_bytes);
  std::vector<std::vector<int32_t>> ids_of_part(parts.size());
  std::atomic<bool> failed{false};
  pool.run(static_cast<int64_t>(parts.size()), [&](int64_t part) {
    const auto index = static_cast<size_t>(part);
    try {
      ids_of_part[index] = tokenizer.encode(parts[index], source);
    } catch (...) {
      failed = true;
    }
  });
  // Encoding the whole text again throws an error with the offset in the whole text.
  if (failed) return tokenizer.encode(text, source);
  size_t count = 0;
  for (const auto& ids : ids_of_part) count += ids.size();
  std::vector<int32_t> all;
  all.reserve(count);
  for (auto& ids : ids_of_part) {
    all.insert(all.end(), ids.begin(), ids.end());
    ids = {};
  }
  return all;
}

}  // namespace lockstep
