// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "store/object_store.h"

namespace lockstep {

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
