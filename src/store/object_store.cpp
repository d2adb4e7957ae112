// SPDX-License-Identifier: Apache-2.0
#include "store/object_store.h"

#include <utility>

#include "core/error.h"
#include "store/folder_store.h"
#include "store/open_s3.h"
#include "store/s3_address.h"

namespace lockstep {

size_t total_bytes(Pieces pieces) {
  size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  return bytes;
}

void ObjectStore::put_group(const std::string& group, std::span<const Object> objects) {
  if (objects.empty()) return;
  const auto [others, last] = std::pair(objects.first(objects.size() - 1), objects.back());
  std::vector<PlannedObject> planned;
  for (const Object& object : others)
    planned.push_back({object.key, static_cast<int64_t>(total_bytes(object.pieces))});
  const std::string begun = begin_group(group, planned, last.key);
  try {
    std::vector<std::string> written;
    for (const Object& object : others) {
      std::vector<ObjectPart> parts;
      int64_t begin = 0;
      for (const auto& piece : object.pieces) {
        parts.push_back({begin, piece});
        begin += std::ssize(piece);
      }
      written.push_back(write_parts(group, begun, object.key, parts));
    }
    end_group(group, begun, written, last);
  } catch (...) {
    drop_group(group, begun);
    throw;
  }
}

std::optional<std::string> local_path(const std::string& address) {
  if (address.starts_with("file:///")) return address.substr(std::string("file://").size());
  if (address.find("://") == std::string::npos) return address;
  return std::nullopt;
}

std::unique_ptr<ObjectStore> open_store(const std::string& address) {
  if (const auto path = local_path(address)) return std::make_unique<FolderStore>(*path);
  require(is_s3_address(address), address,
          " is neither a path nor a file:///path or s3://bucket/prefix address");
  return open_s3(parse_s3_address(address));
}

}  // namespace lockstep
