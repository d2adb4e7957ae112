// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {

/// A control group with a limit of its memory and without swap. It is removed with its owner.
class LimitedGroup {
 public:
  explicit LimitedGroup(const std::string& limit) {
    const std::string name = concat("/lockstep-test-", ::getpid());
    if (make("/sys/fs/cgroup/memory" + name, "/memory.limit_in_bytes")) {
      write_text(path_ + "/memory.limit_in_bytes", limit);
      write_text(path_ + "/memory.memsw.limit_in_bytes", limit);
    } else if (make("/sys/fs/cgroup" + name, "/memory.max")) {
      write_text(path_ + "/memory.max", limit);
      write_text(path_ + "/memory.swap.max", "0");
    }
  }
  ~LimitedGroup() { ::rmdir(path_.c_str()); }
  LimitedGroup(const LimitedGroup&) = delete;
  LimitedGroup& operator=(const LimitedGroup&) = delete;

  /// False if this process may not make one.
  bool exists() const { return !path_.empty(); }
  const std::string& path() const { return path_; }

 private:
  bool make(const std::string& folder, const char* file) {
    std::error_code problem;
    if (!std::filesystem::create_directory(folder, problem)) return false;
    if (std::filesystem::exists(folder + file)) {
      path_ = folder;
      return true;
    }
    ::rmdir(folder.c_str());
    return false;
  }

  std::string path_;
};

}  // namespace lockstep
