// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "store/object_store.h"
#include "store/s3_address.h"
#include "store/s3_client.h"

namespace lockstep {

/// Objects in a bucket of S3, or of a server that speaks its protocol, under a prefix. What is larger than
/// S3Options::part_bytes is sent in parts.
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

  void put_group(const std::string& group, std::span<const Object> objects) override;
  void remove_group(const std::string& group, const std::string& last) override;
  bool has_atomic_groups() const override { return false; }

 private:
  bool put_in_parts(const std::string& key, Pieces contents);
  std::string send_parts(const std::string& key, const std::string& upload, Pieces contents);

  S3Client client_;
  std::string prefix_;  ///< empty, or with a slash at its end
};

}  // namespace lockstep
