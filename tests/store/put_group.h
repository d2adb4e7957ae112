// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/store/object_store.h"

namespace lockstep {

/// Writes the objects of a group alone, the last one as the one that completes it.
inline void put_group(ObjectStore& store, const std::string& group, std::span<const Object> objects) {
  const std::span<const Object> others = objects.first(objects.size() - 1);
  std::vector<PlannedObject> planned;
  for (const Object& object : others)
    planned.push_back({object.key, static_cast<int64_t>(total_bytes(object.pieces))});
  const std::string begun = store.begin_group(group, planned, objects.back().key);
  try {
    std::vector<std::string> written;
    for (const Object& object : others) {
      std::vector<ObjectPart> parts;
      int64_t begin = 0;
      for (const auto& piece : object.pieces) {
        parts.push_back({begin, piece});
        begin += std::ssize(piece);
      }
      written.push_back(store.write_parts(group, begun, object.key, parts));
    }
    store.end_group(group, begun, written, objects.back());
  } catch (...) {
    store.drop_group(group, begun);
    throw;
  }
}

}  // namespace lockstep
