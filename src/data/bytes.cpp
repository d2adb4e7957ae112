// SPDX-License-Identifier: Apache-2.0
#include "data/bytes.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "core/error.h"

namespace lockstep {

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

}  // namespace lockstep
