// SPDX-License-Identifier: Apache-2.0
#include "store/object_store.h"

#include "core/error.h"
#include "store/folder_store.h"
#include "store/s3_address.h"
#include "store/s3_store.h"

namespace lockstep {

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
