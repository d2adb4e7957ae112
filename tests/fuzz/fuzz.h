// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "lockstep/core/descriptor.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/store/object_store.h"

// A target defines this function. libFuzzer calls it with one input after the other. It keeps an input that
// ends the process by a failed check, an invalid access or an unexpected exception.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

namespace lockstep::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t bytes) {
  return {reinterpret_cast<const char*>(data), bytes};
}

/// Ends the process unless the condition holds.
template <class... Args>
void check(bool holds, const Args&... message) {
  if (holds) return;
  std::fprintf(stderr, "CHECK FAILED: %s\n", concat(message...).c_str());
  std::abort();
}

/// Runs a reader of foreign bytes. Returns false if it refuses them with `Refusal`. Another exception ends
/// the process.
template <class Refusal = UserError, class Body>
bool accepts(Body body) {
  try {
    body();
    return true;
  } catch (const Refusal& refusal) {
    check(std::string_view(refusal.what()).size() < 100'000, "a message of 100 kB");
    return false;
  }
}

/// Splits an input of several texts at lines "%%". Missing texts are empty.
inline std::vector<std::string> parts_of(std::string_view input, size_t parts) {
  constexpr std::string_view border = "\n%%\n";
  std::vector<std::string> all;
  while (all.size() + 1 < parts && input.find(border) != std::string_view::npos) {
    all.emplace_back(input.substr(0, input.find(border)));
    input.remove_prefix(input.find(border) + border.size());
  }
  all.emplace_back(input);
  all.resize(parts);
  return all;
}

/// A file in memory with a path, for readers that open files.
class MemoryFile {
 public:
  const std::string& path() const { return path_; }
  void set(std::string_view text) {
    const bool is_set = ::ftruncate(file_.get(), 0) == 0 &&
                        ::pwrite(file_.get(), text.data(), text.size(), 0) == std::ssize(text);
    check(is_set, "cannot write a file in memory");
  }

 private:
  Descriptor file_ = Descriptor(::memfd_create("fuzz", MFD_CLOEXEC));
  std::string path_ = concat("/proc/self/fd/", file_.get());
};

/// A folder that is removed at the end of the process, for readers of a file of a given name.
class TemporaryFolder {
 public:
  /// Replaces a file without waiting for the disk.
  void set(const std::string& name, std::string_view text) const {
    const std::string path = path_ + "/" + name;
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << text;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = make_temporary_folder("fuzz");
};

/// Objects in memory. A read outside of what the interface allows ends the process.
class MemoryObjects : public ObjectReader {
 public:
  explicit MemoryObjects(std::map<std::string, std::string> objects) : objects_(std::move(objects)) {}

  std::optional<std::string> get(const std::string& key, int64_t begin, int64_t bytes) override {
    check(begin >= 0 && bytes >= 0, key, " is read from ", begin, ", ", bytes, " bytes");
    const auto found = objects_.find(key);
    if (found == objects_.end()) return std::nullopt;
    if (begin > std::ssize(found->second)) return "";
    return found->second.substr(static_cast<size_t>(begin), static_cast<size_t>(bytes));
  }
  bool exists(const std::string& key) override { return objects_.contains(key); }
  std::string name_of(const std::string& key) const override { return "memory/" + key; }

 private:
  std::map<std::string, std::string> objects_;
};

}  // namespace lockstep::fuzz
