// SPDX-License-Identifier: Apache-2.0
// A snapshot: its state without the checksum, the model's file and the optimizer's.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "lockstep/core/hash.h"
#include "lockstep/models/gpt2/gpt.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/parameters/placed_tensors.h"
#include "lockstep/snapshot/stored_snapshot.h"
#include "lockstep/tensor/safetensors.h"

using namespace lockstep;
using Json = nlohmann::ordered_json;

namespace {

std::string with_checksum(const Json& state) {
  return Json{{"checksum", hash_text(hash_of(state.dump()))}, {"state", state}}.dump(2) + "\n";
}

/// Sets the checksums of the headers, as an attacker would.
void set_header_checksums(Json& state, const std::map<std::string, std::string>& files) {
  for (const auto& [name, file] : files) {
    if (!state.is_object() || !state.contains("files") || !state["files"].is_object()) return;
    Json& fields = state["files"][name];
    if (!fields.is_object() || file.size() < 8) continue;
    const size_t header =
        8 +
        std::min<size_t>(static_cast<uint8_t>(file[0]) + 256 * static_cast<uint8_t>(file[1]), file.size());
    fields["header"] = hash_text(hash_of(file.substr(0, header)));
    fields["bytes"] = file.size();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const auto parts = fuzz::parts_of(fuzz::text_of(data, bytes), 3);
  fuzz::accepts([&] { StoredSnapshot(parts[0], nullptr, "g"); });
  Json state = Json::parse(parts[0], nullptr, false);
  if (state.is_discarded()) return 0;
  const std::map<std::string, std::string> files = {{"model.safetensors", parts[1]},
                                                    {"optimizer.safetensors", parts[2]}};
  set_header_checksums(state, files);
  std::map<std::string, std::string> objects = {{"g/state.json", with_checksum(state)}};
  for (const auto& [name, file] : files) objects["g/" + name] = file;
  const auto store = std::make_shared<fuzz::MemoryObjects>(objects);
  fuzz::accepts([&] {
    const StoredSnapshot snapshot(store, "g");
    snapshot.require_readable();
    amended_state_text(snapshot.text(), snapshot.state());
    fuzz::accepts([&] { snapshot.verify(); });
    static Gpt model(
        {.vocabulary = 5, .block_size = 4, .layers = 1, .heads = 1, .width = 4, .has_bias = false}, 1);
    static ParameterSpace space(model.parameters());
    static AdamW optimizer(space, {});
    SpaceTensors tensors(space, &optimizer, 1);
    restore(snapshot, World::alone(), tensors, true);
  });
  return 0;
}
