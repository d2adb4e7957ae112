// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

/// The contents of metrics.jsonl in a run's folder. Two runs are equal if all fields are equal.
struct RunResult {
  std::vector<double> losses;
  std::vector<std::string> loss_bits;
  std::string parameters_hash;
  std::vector<std::string> validation_bits;  ///< "step: bits" of each evaluation

  bool operator==(const RunResult&) const = default;
};

inline RunResult read_result(const std::string& directory) {
  RunResult result;
  std::ifstream file(directory + "/metrics.jsonl");
  // A run that has not ended may be writing the last line.
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const auto object = nlohmann::json::parse(line);
    if (object.contains("loss")) result.losses.push_back(object["loss"]);
    if (object.contains("loss_bits")) result.loss_bits.push_back(object["loss_bits"]);
    if (object.contains("val_loss_bits"))
      result.validation_bits.push_back(object["step"].dump() + ": " +
                                       object["val_loss_bits"].get<std::string>());
    if (object.contains("parameters_hash")) result.parameters_hash = object["parameters_hash"];
  }
  return result;
}

/// Returns the loss bits of every step, then the hash, in one list.
inline std::vector<std::string> read_bits(const std::string& directory) {
  RunResult result = read_result(directory);
  if (!result.parameters_hash.empty()) result.loss_bits.push_back(result.parameters_hash);
  return result.loss_bits;
}

}  // namespace lockstep
