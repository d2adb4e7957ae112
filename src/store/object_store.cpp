// SPDX-License-Identifier: Apache-2.0
#include "lockstep/store/object_store.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include "lockstep/core/descriptor.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/process.h"
#include "lockstep/store/s3_address.h"
#include "lockstep/store/s3_client.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Runs the body. Errors of the file system become an Error without the two paths that their text repeats.
template <class Body>
void naming_failures(const std::string& what, Body body) {
  try {
    body();
  } catch (const fs::filesystem_error& problem) {
    throw Error(concat(what, ": ", problem.path1().string(), ": ", problem.code().message()));
  }
}

/// Adds the keys of a folder that have the prefix. `above` is the beginning of all of its keys. A link to a
/// folder is a key like a file, because links may form a loop.
void list_below(const fs::path& folder, const std::string& above, const std::string& prefix,
                std::vector<std::string>& keys) {
  // A folder that is removed while it is read lists nothing.
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string key = above + entry.path().filename().string();
    if (!key.starts_with(prefix)) continue;
    const size_t before = keys.size();
    // A link may lead to a folder of others, or back to this one.
    const bool is_folder = fs::is_directory(entry.symlink_status(ignored));
    if (is_folder) list_below(entry.path(), key + "/", prefix, keys);
    if (keys.size() == before) keys.push_back(is_folder ? key + "/" : key);
  }
}

/// Returns the temporary name of a group, different for each process. So a process that lost the folder does
/// not write into the files of another. Process numbers alone may be equal in containers and on other hosts.
std::string beside_of(const std::string& group) { return concat(group, ".", process_mark(), ".tmp"); }

/// Creates a file of `bytes` zeros.
void make_file(const std::string& path, int64_t bytes) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  const bool is_made = file && ::ftruncate(file.get(), bytes) == 0;
  expect(is_made, "cannot write ", path, ": ", std::strerror(errno));
}

void write_pieces(const std::string& path, Pieces pieces) {
  NewFile file(path);
  int64_t begin = 0;
  for (const auto& piece : pieces) {
    file.write(begin, piece);
    begin += std::ssize(piece);
  }
  file.publish();
}

}  // namespace

std::string FolderStore::name_of(const std::string& key) const {
  return key.empty() ? folder_ : (fs::path(folder_) / key).string();
}

void FolderStore::put(const std::string& key, Pieces contents) {
  const fs::path path = name_of(key);
  naming_failures(concat("cannot write ", path.string()), [&] {
    fs::create_directories(path.parent_path());
    ask_guard();
    write_pieces(path.string(), contents);
    sync_directory(path.parent_path().string());
  });
}

/// Throws Error if a disk or a server fails to read. Another try may succeed: the object is not damaged.
std::optional<std::string> FolderStore::get(const std::string& key, int64_t begin, int64_t bytes) {
  const std::string path = name_of(key);
  std::error_code problem;
  const fs::file_status status = fs::status(path, problem);
  if (status.type() == fs::file_type::not_found) return std::nullopt;
  require(fs::is_regular_file(status), path, " is not a file that can be read");
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  require(file.get() >= 0 || errno != EACCES, path, " cannot be read: ", std::strerror(errno));
  expect(file.get() >= 0, path, " cannot be read: ", std::strerror(errno));
  const auto size = static_cast<int64_t>(fs::file_size(path, problem));
  std::string contents(static_cast<size_t>(std::clamp<int64_t>(size - begin, 0, bytes)), '\0');
  size_t done = 0;
  while (done < contents.size()) {
    const ssize_t count = ::pread(file.get(), contents.data() + done, contents.size() - done,
                                  begin + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    expect(count >= 0, path, " cannot be read: ", std::strerror(errno));
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  contents.resize(done);
  return contents;
}

bool FolderStore::exists(const std::string& key) {
  std::error_code ignored;
  return fs::is_regular_file(name_of(key), ignored);
}

void FolderStore::remove(const std::string& key) {
  ask_guard();
  naming_failures("cannot remove a file", [&] { fs::remove(name_of(key)); });
}

std::vector<std::string> FolderStore::list(const std::string& prefix) {
  const std::string folder = prefix.substr(0, prefix.rfind('/') + 1);
  std::vector<std::string> keys;
  list_below(name_of(folder), folder, prefix, keys);
  std::sort(keys.begin(), keys.end());
  return keys;
}

std::string FolderStore::begin_group(const std::string& group, std::span<const PlannedObject> objects,
                                     const std::string& /*last*/) {
  std::string begun = beside_of(group);
  // An exchange would leave the folder behind the link to be cleaned up.
  expect(!fs::is_symlink(fs::symlink_status(name_of(group))), name_of(group),
         " is a symbolic link, and snapshots are not written through links");
  const fs::path beside = name_of(begun);
  naming_failures(concat("cannot write ", name_of(group)), [&] {
    fs::create_directories(folder_);
    ask_guard();
    remove_own_files(begun);
    fs::create_directory(beside);
  });
  try {
    for (const PlannedObject& object : objects) make_file((beside / object.key).string(), object.bytes);
  } catch (const Error&) {
    drop_group(group, begun);
    throw;
  }
  return begun;
}

std::string FolderStore::write_parts(const std::string& /*group*/, const std::string& begun,
                                     const std::string& key, std::span<const ObjectPart> parts) {
  const std::string path = (fs::path(name_of(begun)) / key).string();
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const auto write_part = [&](const ObjectPart& part) {
    for (size_t done = 0; done < part.bytes.size();) {
      const ssize_t count = ::pwrite(file.get(), part.bytes.data() + done, part.bytes.size() - done,
                                     part.begin + static_cast<int64_t>(done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      done += static_cast<size_t>(count);
    }
    return true;
  };
  const bool is_written = file && std::ranges::all_of(parts, write_part) && ::fsync(file.get()) == 0;
  expect(is_written, "cannot write ", path, ": ", std::strerror(errno));
  return "";
}

/// Returns whether the caller has written a file of a group. A killed NewFile may have left "NAME.MARK.tmp".
bool FolderStore::is_own_file(const fs::directory_entry& entry) const {
  if (entry.is_symlink() || !entry.is_regular_file()) return false;
  const std::string name = entry.path().filename().string();
  if (is_own(name) || !name.ends_with(".tmp")) return is_own(name);
  const size_t end = name.size() - std::string_view(".tmp").size(), dot = name.find_last_of('.', end - 1);
  return dot < end && name.find_first_not_of("0123456789-", dot + 1) == end && is_own(name.substr(0, dot));
}

bool FolderStore::has_foreign_files(const std::string& group) const {
  std::error_code ignored;
  const fs::directory_iterator entries(name_of(group), ignored);
  return !std::all_of(begin(entries), end(entries),
                      [this](const fs::directory_entry& entry) { return is_own_file(entry); });
}

/// Removes the caller's files of a group, and its folder unless others have files there.
void FolderStore::remove_own_files(const std::string& group) const {
  const fs::path folder = name_of(group);
  // A link is not the caller's, and leads to a folder of others.
  if (!fs::is_directory(fs::symlink_status(folder))) return;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_own_file(entry)) files.push_back(entry.path());
  for (const fs::path& file : files) fs::remove(file);
  if (!has_foreign_files(group)) fs::remove(folder);
}

/// Exchanges two directories, because one cannot be renamed over another. If the file system cannot exchange,
/// it renames twice. After a crash between the two steps .old is still there.
void FolderStore::exchange(const std::string& group, const std::string& begun) {
  const fs::path target = name_of(group), beside = name_of(begun);
  // Writing may have taken long, so the owner is checked again.
  ask_guard();
  std::string replaced = begun;
  if (::renameat2(AT_FDCWD, beside.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0) {
    replaced = fs::exists(target) ? group + ".old" : "";
    if (!replaced.empty()) {
      remove_own_files(replaced);
      fs::rename(target, name_of(replaced));
    }
    fs::rename(beside, target);
  }
  sync_directory(folder_);
  if (replaced.empty()) return;
  remove_own_files(replaced);
  std::error_code is_gone;
  for (const auto& entry : fs::directory_iterator(name_of(replaced), is_gone)) {
    const fs::path kept = target / entry.path().filename();
    if (!fs::exists(fs::symlink_status(kept))) fs::rename(entry.path(), kept);
  }
  if (!has_foreign_files(replaced)) fs::remove(name_of(replaced));
}

void FolderStore::end_group(const std::string& group, const std::string& begun,
                            std::span<const std::string> /*written*/, const Object& last) {
  naming_failures(concat("cannot write ", name_of(group)), [&] {
    const fs::path beside = name_of(begun);
    write_pieces((beside / last.key).string(), last.pieces);
    sync_directory(beside.string());
    exchange(group, begun);
  });
}

void FolderStore::drop_group(const std::string& /*group*/, const std::string& begun) noexcept {
  try {
    remove_own_files(begun);
  } catch (const fs::filesystem_error&) {
    // Only the first failure is reported.
  }
}

void FolderStore::remove_group(const std::string& group, const std::string& last) {
  ask_guard();
  naming_failures(concat("cannot remove ", name_of(group)), [&] {
    const std::string beside = group + ".tmp";
    const bool is_leftover = group.ends_with(".tmp") || group.ends_with(".old");
    const bool must_stay = is_leftover || has_foreign_files(group);
    if (!must_stay) remove_own_files(beside);
    if (must_stay || fs::exists(fs::symlink_status(name_of(beside)))) {
      fs::remove(fs::path(name_of(group)) / last);
      return remove_own_files(group);
    }
    // Renames the group first. So a crash leaves it whole, or under a name that is not that of a group.
    fs::rename(name_of(group), name_of(beside));
    ask_guard();
    remove_own_files(beside);
  });
}

size_t total_bytes(Pieces pieces) {
  size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  return bytes;
}

std::optional<std::string> local_path(const std::string& address) {
  if (address.starts_with("file:///")) return address.substr(std::string("file://").size());
  if (address.find("://") == std::string::npos) return address;
  return std::nullopt;
}

std::unique_ptr<ObjectStore> open_store(const std::string& address, bool may_wait) {
  if (const auto path = local_path(address)) return std::make_unique<FolderStore>(*path);
  require(is_s3_address(address), address,
          " is neither a path nor a file:///path or s3://bucket/prefix address");
  return open_s3(parse_s3_address(address), std::nullopt, may_wait);
}

}  // namespace lockstep
