// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "train/language_model.h"
#include "train/program.h"

using namespace lockstep;

int main(int argc, char** argv) {
  return run_program([&] {
    const Arguments arguments = split_arguments(argc, argv);
    if (arguments.help) {
      std::cout << config_help(arguments.program);
      return 0;
    }
    Config config = load_config(arguments);
    const World world = start_world(config);
    const LanguageData data = load_language_data(config, world);
    const std::unique_ptr<Gpt> model = make_gpt(config, data.vocabulary_size);
    return train(config, world, language_task(config, *model, data));
  });
}
