// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "store/http.h"
#include "store/object_store.h"

namespace lockstep {

/// A read-only store of objects below an http(s) address: "a/b.txt" is <address>/a/b.txt. A server that does
/// not support ranges sends the whole object, which is then kept in memory. Functions that write or list
/// throw Error.
class HttpFolder : public ObjectStore {
 public:
  explicit HttpFolder(std::string address);

  void put(const std::string& key, Pieces contents) override;
  std::optional<std::string> get(const std::string& key) override;
  std::optional<std::string> get(const std::string& key, int64_t begin, int64_t bytes) override;
  bool exists(const std::string& key) override;
  void remove(const std::string& key) override;
  std::vector<std::string> list(const std::string& prefix) override;
  std::string name_of(const std::string& key) const override;
  std::string begin_group(const std::string& group, std::span<const PlannedObject> objects,
                          const std::string& last) override;
  std::string write_parts(const std::string& group, const std::string& begun, const std::string& key,
                          std::span<const ObjectPart> parts) override;
  void end_group(const std::string& group, const std::string& begun, std::span<const std::string> written,
                 const Object& last) override;
  void drop_group(const std::string& group, const std::string& begun) noexcept override;
  int64_t part_bytes(int64_t object_bytes) const override { return object_bytes; }
  void remove_group(const std::string& group, const std::string& last) override;
  bool has_atomic_groups() const override { return false; }

 private:
  HttpReply ask(const std::string& key, const std::vector<std::string>& headers);

  std::string address_;
  HttpClient client_;
  std::map<std::string, std::string> whole_;  ///< objects that came whole instead of a range
};

}  // namespace lockstep
