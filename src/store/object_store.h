// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Memory that is written piece after piece, so that nothing has to be copied together first.
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

/// What one of them writes of it, from byte `begin` on.
struct ObjectPart {
  int64_t begin = 0;
  std::span<const std::byte> bytes;
};

/// Objects by key ("a/b.txt") in a folder or a bucket. Failures of the network or the disk throw Error after
/// retries; what the user has to change (address, credentials, permissions) throws UserError. Both name the
/// object. One thread uses a store at a time.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  /// Called before anything is renamed or deleted; what it throws leaves all as it was.
  void set_guard(std::function<void()> guard) { guard_ = std::move(guard); }

  /// Whoever reads meanwhile sees the old object or the new one, whole.
  virtual void put(const std::string& key, Pieces contents) = 0;
  /// Nothing if there is no such object.
  virtual std::optional<std::string> get(const std::string& key) = 0;
  /// At most `bytes` of an object from byte `begin`: fewer where it ends, none beyond.
  virtual std::optional<std::string> get(const std::string& key, int64_t begin, int64_t bytes) = 0;
  virtual bool exists(const std::string& key) = 0;
  /// It is no error if there is no such object.
  virtual void remove(const std::string& key) = 0;
  /// The keys that start with `prefix`, in ASCII order. An empty folder is listed with a slash at its end.
  virtual std::vector<std::string> list(const std::string& prefix) = 0;
  /// The full name of a key for a person: a path, or s3://bucket/key.
  virtual std::string name_of(const std::string& key) const = 0;

  /// Writes objects under group + "/" that belong together: they are whole once the last one is there.
  void put_group(const std::string& group, std::span<const Object> objects);
  /// The same by several processes. One begins, with all objects but the last, whose key it names; then any
  /// of them write parts, each with what begin_group() has returned, until every byte was written once; then
  /// the first ends it, with what all calls of write_parts() have returned, or drops it.
  virtual std::string begin_group(const std::string& group, std::span<const PlannedObject> objects,
                                  const std::string& last) = 0;
  virtual std::string write_parts(const std::string& group, const std::string& begun, const std::string& key,
                                  std::span<const ObjectPart> parts) = 0;
  virtual void end_group(const std::string& group, const std::string& begun,
                         std::span<const std::string> written, const Object& last) = 0;
  virtual void drop_group(const std::string& group, const std::string& begun) noexcept = 0;
  /// The parts that one call of write_parts() gets are one after the other, begin at a multiple of so many
  /// bytes and end at one or at the object's end; 1: they may lie anywhere.
  virtual int64_t part_bytes(int64_t object_bytes) const = 0;
  /// Removes all objects under group + "/"; `last` first, so that what is left by a crash is not whole.
  virtual void remove_group(const std::string& group, const std::string& last) = 0;
  /// True if a group appears, and is replaced, in one step. Then one without its last object is damaged;
  /// elsewhere it was only never finished.
  virtual bool has_atomic_groups() const = 0;

 protected:
  void ask_guard() const {
    if (guard_) guard_();
  }

 private:
  std::function<void()> guard_;
};

/// The store at a path, file:// or s3://bucket[/prefix] address. Contacts nothing and makes nothing yet.
/// Throws UserError for any other address.
std::unique_ptr<ObjectStore> open_store(const std::string& address);

/// The path that an address of the local file system means; nothing for one of a bucket.
std::optional<std::string> local_path(const std::string& address);

}  // namespace lockstep
