// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/snapshot/snapshot_store.h"
#include "lockstep/tensor/safetensors.h"

namespace lockstep {

struct LoadedSnapshot : Snapshot {
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
};

/// Returns the snapshot that find_snapshot() finds. Its tensors are verified and in new CPU memory.
inline LoadedSnapshot load_snapshot(const std::string& path) {
  const StoredSnapshot stored = find_snapshot(path);
  const auto tensors_of = [&](const std::string& file) {
    std::string bytes = stored.file(file).header;
    stored.read(stored.file(file), [&](int64_t, std::span<const std::byte> piece) {
      bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    });
    return from_safetensors(bytes, stored.name() + "/" + file).tensors;
  };
  return {stored.state(), tensors_of(model_file), tensors_of(optimizer_file)};
}

}  // namespace lockstep
