// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "store/object_store.h"

namespace lockstep {

/// Objects as files below a folder, which is made by the first put. What is written is on the disk (synced)
/// when put returns.
class FolderStore : public ObjectStore {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}

  void put(const std::string& key, Pieces contents) override;
  std::optional<std::string> get(const std::string& key) override;
  std::optional<std::string> get(const std::string& key, int64_t begin, int64_t bytes) override;
  bool exists(const std::string& key) override;
  void remove(const std::string& key) override;
  std::vector<std::string> list(const std::string& prefix) override;
  std::string name_of(const std::string& key) const override;

  /// Written as <group>.<process>.tmp and exchanged with a group of that name. Where the file system cannot
  /// exchange, that one is meanwhile <group>.old.
  void put_group(const std::string& group, std::span<const Object> objects) override;
  void remove_group(const std::string& group, const std::string& last) override;
  bool has_atomic_groups() const override { return true; }

 private:
  void write_group(const std::string& group, std::span<const Object> objects);

  std::string folder_;
};

}  // namespace lockstep
