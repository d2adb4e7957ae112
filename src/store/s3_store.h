// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "store/object_store.h"
#include "store/s3_address.h"
#include "store/s3_client.h"

namespace lockstep {

/// An uploaded part: its number, from 1, and the server's tag of its contents.
using SentPart = std::pair<int64_t, std::string>;

/// A store of objects under a prefix in a bucket of S3, or of a server that supports its protocol. An object
/// larger than S3Options::part_bytes is uploaded in parts.
class S3Store : public ObjectStore {
 public:
  S3Store(const S3Address& address, const S3Options& options);

  void put(const std::string& key, Pieces contents) override;
  std::optional<std::string> get(const std::string& key) override;
  std::optional<std::string> get(const std::string& key, int64_t begin, int64_t bytes) override;
  bool exists(const std::string& key) override;
  void remove(const std::string& key) override;
  std::vector<std::string> list(const std::string& prefix) override;
  std::string name_of(const std::string& key) const override;

  /// Starts an upload for every object of more than a part and returns the names of the uploads. A process
  /// that writes parts needs permissions of its own.
  std::string begin_group(const std::string& group, std::span<const PlannedObject> objects,
                          const std::string& last) override;
  std::string write_parts(const std::string& group, const std::string& begun, const std::string& key,
                          std::span<const ObjectPart> parts) override;
  void end_group(const std::string& group, const std::string& begun, std::span<const std::string> written,
                 const Object& last) override;
  void drop_group(const std::string& group, const std::string& begun) noexcept override;
  int64_t part_bytes(int64_t object_bytes) const override;
  void remove_group(const std::string& group, const std::string& last) override;
  bool has_atomic_groups() const override { return false; }

 private:
  bool put_in_parts(const std::string& key, Pieces contents);
  std::string begin_upload(const std::string& key);
  std::optional<std::string> send_part(const std::string& key, const std::string& upload, int64_t number,
                                       Pieces contents);
  bool complete(const std::string& key, const std::string& upload, const std::vector<SentPart>& parts);
  void drop_upload(const std::string& key, const std::string& upload) noexcept;

  S3Client client_;
  std::string prefix_;  ///< empty, or with a slash at its end
};

}  // namespace lockstep
