// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace lockstep {

/// A pipe with a text of at most 1 MiB, as a shell's <(...) makes it. It can be read once.
class FullPipe {
 public:
  explicit FullPipe(const std::string& text) {
    int both[2] = {-1, -1};
    EXPECT_EQ(::pipe2(both, O_CLOEXEC), 0);
    reader_ = both[0];
    EXPECT_GE(::fcntl(both[1], F_SETPIPE_SZ, 1 << 20), std::ssize(text));
    EXPECT_EQ(::write(both[1], text.data(), text.size()), std::ssize(text));
    ::close(both[1]);
  }
  ~FullPipe() { ::close(reader_); }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;

  std::string path() const { return "/dev/fd/" + std::to_string(reader_); }

 private:
  int reader_ = -1;
};

}  // namespace lockstep
