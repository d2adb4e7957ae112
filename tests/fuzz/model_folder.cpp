// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder: config.json, the index (or nothing), and a file of tensors.
#include "huggingface/model_folder.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const auto parts = fuzz::parts_of(fuzz::text_of(data, bytes), 3);
  fuzz::accepts([&] {
    const Gpt2Config config = parse_gpt2_config(parts[0], "config.json");
    const std::string written = gpt2_config_json(config);
    fuzz::check(gpt2_config_json(parse_gpt2_config(written, "again")) == written, "reads back differently:\n",
                written);
    if (config.model.layers > 64) return;  // the names of more tensors take long
    std::map<std::string, std::string> objects = {{"config.json", parts[0]}};
    if (!parts[1].empty()) objects["model.safetensors.index.json"] = parts[1];
    objects[parts[1].empty() ? "model.safetensors" : "a.safetensors"] = parts[2];
    const ModelFolder folder(std::make_shared<fuzz::MemoryObjects>(objects));
    folder.hash();
    for (const auto& [name, place] : folder.tensors()) folder.read(place, 0, place.shape.elements());
  });
  return 0;
}
