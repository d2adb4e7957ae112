// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Pieces of memory that are written one after the other. So nothing has to be copied together first.
using Pieces = std::span<const std::span<const std::byte>>;

size_t total_bytes(Pieces pieces);

/// An object to be written: its key and its contents.
struct Object {
  std::string key;
  std::vector<std::span<const std::byte>> pieces;
};

/// An object that several processes write: its key and its size.
struct PlannedObject {
  std::string key;
  int64_t bytes = 0;
};

/// The part of an object that one process writes, from byte `begin` on.
struct ObjectPart {
  int64_t begin = 0;
  std::span<const std::byte> bytes;
};

/// Objects by key ("a/b.txt") that can be read. Failures of the network or the disk throw Error after
/// retries. Mistakes that the user has to fix (address, credentials, permissions) throw UserError. Both name
/// the object. One thread uses it at a time.
class ObjectReader {
 public:
  virtual ~ObjectReader() = default;

  static constexpr int64_t all_bytes = std::numeric_limits<int64_t>::max();
  /// Returns at most `bytes` of an object from byte `begin`: fewer at its end, and none beyond it. Returns
  /// nothing if there is no such object.
  virtual std::optional<std::string> get(const std::string& key, int64_t begin = 0,
                                         int64_t bytes = all_bytes) = 0;
  virtual bool exists(const std::string& key) = 0;
  /// Returns the full name of a key for messages: a path, or s3://bucket/key.
  virtual std::string name_of(const std::string& key) const = 0;
};

/// A store of objects in a folder or a bucket. Its errors are those of ObjectReader.
class ObjectStore : public ObjectReader {
 public:
  /// Sets which files of a group are the caller's, by name. Other files in a group are never deleted. Without
  /// this call all files are the caller's.
  void set_own_files(std::function<bool(const std::string& name)> is_own) { is_own_ = std::move(is_own); }
  /// Sets a function that is called before anything is renamed, deleted or put. If it throws, nothing
  /// changes.
  void set_guard(std::function<void()> guard) { guard_ = std::move(guard); }

  /// Writes an object. Concurrent readers see the old object or the new one, whole.
  virtual void put(const std::string& key, Pieces contents) = 0;
  void put_text(const std::string& key, std::string_view text) {
    put(key, std::array{std::as_bytes(std::span(text))});
  }
  /// Removes an object. It is no error if there is no such object.
  virtual void remove(const std::string& key) = 0;
  /// Returns the keys that start with `prefix`, in ASCII order. An empty folder has a slash at its end.
  virtual std::vector<std::string> list(const std::string& prefix) = 0;

  /// Begins a group of objects under group + "/" that several processes write. It is whole once its last
  /// object, with the key `last`, exists. `objects` are the others. Later calls get the result as `begun`.
  virtual std::string begin_group(const std::string& group, std::span<const PlannedObject> objects,
                                  const std::string& last) = 0;
  /// Writes parts of an object and returns a receipt. Any process may call it, for each byte once.
  virtual std::string write_parts(const std::string& group, const std::string& begun, const std::string& key,
                                  std::span<const ObjectPart> parts) = 0;
  /// Completes a group that this process began. `written` are the results of all write_parts() calls.
  virtual void end_group(const std::string& group, const std::string& begun,
                         std::span<const std::string> written, const Object& last) = 0;
  /// Abandons a group. The process that began it calls this instead of end_group().
  virtual void drop_group(const std::string& group, const std::string& begun) noexcept = 0;
  /// Returns the alignment of parts in bytes; 1: none. The parts of one write_parts() call follow each other.
  /// They begin at a multiple of the alignment. They end at a multiple or at the end of the object.
  virtual int64_t part_bytes(int64_t object_bytes) const = 0;
  /// Removes the caller's files of a group, first `last`: a crash leaves no group that looks whole.
  virtual void remove_group(const std::string& group, const std::string& last) = 0;
  /// Returns whether a group appears, and is replaced, in one step. If so, a group without its last object is
  /// damaged. Otherwise it was never completed.
  virtual bool has_atomic_groups() const = 0;

 protected:
  void ask_guard() const {
    if (guard_) guard_();
  }
  bool is_own(const std::string& name) const { return !is_own_ || is_own_(name); }

 private:
  std::function<bool(const std::string& name)> is_own_;
  std::function<void()> guard_;
};

/// Opens a path, file:// or s3://bucket[/prefix], and touches nothing yet. Throws UserError for others.
/// `may_wait`: whether requests outlast an outage of a server.
std::unique_ptr<ObjectStore> open_store(const std::string& address, bool may_wait = true);

/// Returns the path that an address of the local file system means, or nothing for a bucket.
std::optional<std::string> local_path(const std::string& address);

/// A store of files below a folder, which the first put creates. put syncs the data to disk.
class FolderStore : public ObjectStore {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}

  void put(const std::string& key, Pieces contents) override;
  std::optional<std::string> get(const std::string& key, int64_t begin = 0,
                                 int64_t bytes = all_bytes) override;
  bool exists(const std::string& key) override;
  void remove(const std::string& key) override;
  std::vector<std::string> list(const std::string& prefix) override;
  std::string name_of(const std::string& key) const override;

  /// Begins a group in <group>.<process>.tmp and returns this name. end_group() exchanges it with an existing
  /// group. If the file system cannot exchange, the existing group is <group>.old for a moment. Files of
  /// others in the existing group move to the new one.
  std::string begin_group(const std::string& group, std::span<const PlannedObject> objects,
                          const std::string& last) override;
  std::string write_parts(const std::string& group, const std::string& begun, const std::string& key,
                          std::span<const ObjectPart> parts) override;
  void end_group(const std::string& group, const std::string& begun, std::span<const std::string> written,
                 const Object& last) override;
  void drop_group(const std::string& group, const std::string& begun) noexcept override;
  int64_t part_bytes(int64_t /*object_bytes*/) const override { return 1; }
  void remove_group(const std::string& group, const std::string& last) override;
  bool has_atomic_groups() const override { return true; }

 private:
  void exchange(const std::string& group, const std::string& begun);
  bool is_own_file(const std::filesystem::directory_entry& entry) const;
  bool has_foreign_files(const std::string& group) const;
  void remove_own_files(const std::string& group) const;

  std::string folder_;
};

}  // namespace lockstep
