// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder: config.json, the index (or nothing), and a file of tensors.
#include "lockstep/huggingface/model_folder.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const auto parts = fuzz::parts_of(fuzz::text_of(data, bytes), 3);
  fuzz::accepts([&] {
    const ModelDescription model = read_model_config(parts[0], "config.json");
    const std::string written = model.family->config_json(model, DType::f32);
    const ModelDescription again = read_model_config(written, "again");
    fuzz::check(again.family->config_json(again, DType::f32) == written, "reads back differently:\n",
                written);
    if (model.options.n_layer > 64) return;  // the names of more tensors take long
    std::map<std::string, std::string> objects = {{"config.json", parts[0]}};
    if (!parts[1].empty()) objects["model.safetensors.index.json"] = parts[1];
    objects[parts[1].empty() ? "model.safetensors" : "a.safetensors"] = parts[2];
    const ModelFolder folder(std::make_shared<fuzz::MemoryObjects>(objects));
    folder.hash();
    for (const auto& [name, place] : folder.tensors()) folder.read(place, 0, place.shape.elements());
  });
  return 0;
}
