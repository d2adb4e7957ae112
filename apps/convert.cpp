// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "lockstep/comm/world.h"
#include "lockstep/huggingface/model_layout.h"
#include "lockstep/program/command_line.h"

using namespace lockstep;

int main(int argc, char** argv) {
  CommandLine line("Writes a model as a new Hugging Face folder");
  std::string from, to, dtype = "fp32";
  line.add("IN,--in", from, "a run, a snapshot, or a Hugging Face folder (a path, s3:// or https://)",
           {.is_required = true, .is_path = true});
  line.add("OUT,--out", to, "a folder that does not exist", {.is_required = true, .is_path = true});
  line.add("--dtype", dtype, "the dtype of the written values", {.choices = {"fp32", "bf16", "fp16"}});
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  return run_alone([&] {
    convert_model(SourceModel(from, World::alone()), to, precision_called(dtype));
    std::cout << to << "\n";
    return 0;
  });
}
