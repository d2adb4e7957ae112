// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/bytes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "lockstep/core/descriptor.h"
#include "lockstep/core/error.h"

namespace lockstep {

struct Bytes::File {
  Descriptor descriptor;
  std::string path;
};

Bytes Bytes::of_file(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Bytes bytes;
  bytes.size_ = file ? ::lseek(file.get(), 0, SEEK_END) : -1;
  require(bytes.size_ >= 0, "cannot read ", path, ": ", std::strerror(errno));
  bytes.file_ = std::make_shared<const File>(File{std::move(file), path});
  return bytes;
}

void Bytes::read(int64_t begin, std::span<std::byte> to) const {
  expect(begin >= 0 && begin + std::ssize(to) <= size_, "bytes [", begin, ", ", begin + std::ssize(to),
         ") of ", size_);
  if (!file_ && !to.empty()) std::memcpy(to.data(), memory_.get() + begin, to.size());
  while (file_ && !to.empty()) {
    const ssize_t count = ::pread(file_->descriptor.get(), to.data(), to.size(), begin);
    if (count < 0 && errno == EINTR) continue;
    expect(count != 0, "cannot read ", file_->path, ": it ends at byte ", begin, " and had ", size_);
    expect(count > 0, "cannot read ", file_->path, ": ", std::strerror(errno));
    begin += count;
    to = to.subspan(static_cast<size_t>(count));
  }
}

Tokens::Tokens(std::vector<int32_t> ids) : bytes_(std::move(ids)), count_(bytes_.size() / 4) {}

Tokens::Tokens(Bytes bytes, int64_t begin, int64_t count, int bytes_each)
    : bytes_(std::move(bytes)), begin_(begin), count_(count), bytes_each_(bytes_each) {
  expect(bytes_each == 2 || bytes_each == 4, "ids of ", bytes_each, " bytes");
}

void Tokens::copy(int64_t begin, int64_t count, int32_t* ids) const {
  expect(begin >= 0 && count >= 0 && begin + count <= count_, "tokens [", begin, ", ", begin + count, ") of ",
         count_);
  const auto read = [&](auto* to, int64_t first, int64_t number) {
    const std::span piece(to, static_cast<size_t>(number));
    bytes_.read(begin_ + first * bytes_each_, std::as_writable_bytes(piece));
  };
  if (bytes_each_ == 4) return read(ids, begin, count);
  std::array<uint16_t, 4096> narrow;
  for (int64_t done = 0; done < count; done += std::ssize(narrow)) {
    const int64_t number = std::min(count - done, std::ssize(narrow));
    read(narrow.data(), begin + done, number);
    std::copy_n(narrow.begin(), number, ids + done);
  }
}

Tokens Tokens::slice(int64_t begin, int64_t end) const {
  expect(begin >= 0 && begin <= end && end <= count_, "tokens [", begin, ", ", end, ") of ", count_);
  Tokens part = *this;
  part.begin_ += begin * bytes_each_;
  part.count_ = end - begin;
  return part;
}

}  // namespace lockstep
