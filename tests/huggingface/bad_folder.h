// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/huggingface/source_model.h"
#include "lockstep/models/family.h"
#include "lockstep/parameters/parameter_space.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/user_error.h"

namespace lockstep {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// A copy of a golden folder that a test changes.
class BadFolder : public testing::Test {
 protected:
  explicit BadFolder(const std::string& name = "without_prefix") {
    fs::copy(LOCKSTEP_SOURCE_DIR "/tests/golden/huggingface/" + name, folder());
  }
  std::string folder() const { return directory_ / "model"; }
  std::string path_of(const std::string& file) const { return folder() + "/" + file; }
  void write(const std::string& file, const std::string& bytes) const {
    std::ofstream(path_of(file), std::ios::binary) << bytes;
  }
  /// Returns the error about the folder. Reads its values too.
  std::string problem() const {
    return user_error([&] {
      const SourceModel source(folder(), World::alone());
      const auto model = source.description().family->make(source.description().options, {}, 1);
      const ParameterSpace space(model->parameters());
      SpaceTensors tensors(space, nullptr, 1);
      source.load(World::alone(), tensors);
    });
  }
  /// Returns the error about the folder with another config.json.
  std::string with_config(const std::function<void(Json&)>& change) const {
    Json config = Json::parse(read_text(path_of("config.json")));
    change(config);
    write("config.json", config.dump());
    return problem();
  }
  std::string with_field(const char* name, const Json& value) const {
    return with_config([&](Json& config) { config[name] = value; });
  }

 private:
  TemporaryDirectory directory_;
};

}  // namespace lockstep
