// SPDX-License-Identifier: Apache-2.0
#include "train/snapshot.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "tensor/safetensors.h"
#include "train/parameters_hash.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* model_file = "model.safetensors";
constexpr const char* optimizer_file = "optimizer.safetensors";
constexpr const char* state_file = "state.json";
constexpr const char* best_name = "best";
constexpr const char* step_prefix = "step-";

std::string checksum(const std::string& bytes) { return hash_text(hash_of(bytes)); }

/// The state with a checksum of its own text in front. Only exactly this text is accepted back.
std::string seal(const Json& state) {
  return Json{{"checksum", checksum(state.dump())}, {"state", state}}.dump(2) + "\n";
}

Json unseal(const std::string& bytes) {
  const Json sealed = Json::parse(bytes);
  Json state = sealed.at("state");
  require(seal(state) == bytes, "its checksum does not match");
  return state;
}

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "it cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

SnapshotFiles read_directory(const fs::path& directory) {
  SnapshotFiles files;
  for (const char* name : {model_file, optimizer_file, state_file}) {
    try {
      files[name] = read_bytes(directory / name);
    } catch (const UserError& problem) {
      throw UserError(concat((directory / name).string(), ": ", problem.what()));
    }
  }
  from_files(files, directory.string());
  return files;
}

std::string step_name(int64_t step) {
  const std::string digits = std::to_string(step);
  return step_prefix + std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0') + digits;
}

}  // namespace

SnapshotFiles to_files(const Snapshot& snapshot) {
  SnapshotFiles files;
  files[model_file] = to_safetensors({snapshot.model, {{"format", "pt"}}});
  files[optimizer_file] = to_safetensors({snapshot.optimizer, {}});
  Json state = {{"step", snapshot.step},
                {"optimizer_steps", snapshot.optimizer_steps},
                {"finished", snapshot.is_finished},
                {"best_validation_loss", nullptr},
                {"configuration", snapshot.configuration},
                {"artifacts", snapshot.artifacts},
                {"matmul_plans", snapshot.matmul_plans}};
  if (snapshot.best_validation_loss) state["best_validation_loss"] = *snapshot.best_validation_loss;
  for (const auto& [name, bytes] : files) state["files"][name] = checksum(bytes);
  files[state_file] = seal(state);
  return files;
}

Snapshot from_files(const SnapshotFiles& files, const std::string& origin) {
  std::string file = state_file;
  try {
    const Json state = unseal(files.at(state_file));
    for (const auto& [name, sum] : state.at("files").items()) {
      file = name;
      require(files.contains(name) && checksum(files.at(name)) == sum.get<std::string>(),
              "its checksum does not match");
    }
    Snapshot snapshot{.step = state.at("step"),
                      .optimizer_steps = state.at("optimizer_steps"),
                      .is_finished = state.at("finished"),
                      .best_validation_loss = {},
                      .configuration = state.at("configuration"),
                      .artifacts = state.at("artifacts"),
                      .matmul_plans = state.value("matmul_plans", ""),
                      .model = {},
                      .optimizer = {}};
    if (!state.at("best_validation_loss").is_null())
      snapshot.best_validation_loss = state.at("best_validation_loss");
    snapshot.model = from_safetensors(files.at(model_file), model_file).tensors;
    snapshot.optimizer = from_safetensors(files.at(optimizer_file), optimizer_file).tensors;
    return snapshot;
  } catch (const UserError& problem) {
    throw UserError(concat(origin, "/", file, " is damaged: ", problem.what()));
  } catch (const std::exception& problem) {
    throw UserError(concat(origin, "/", file, " is damaged: ", problem.what()));
  }
}

SnapshotStore::SnapshotStore(std::string directory, int64_t keep)
    : directory_(std::move(directory)), keep_(keep) {
  expect(keep_ >= 1, "snapshot.keep is ", keep_);
}

std::vector<std::string> SnapshotStore::steps_newest_first() const {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory_, ignored)) {
    const std::string name = entry.path().filename().string();
    const std::string digits =
        name.starts_with(step_prefix) ? name.substr(std::string(step_prefix).size()) : "";
    const bool is_number =
        !digits.empty() && digits.size() < 19 &&
        std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (is_number) found.emplace_back(std::stoll(digits), name);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  for (auto& [step, name] : found) names.push_back(std::move(name));
  return names;
}

void SnapshotStore::write_directory(const std::string& name, const Snapshot& snapshot) {
  const fs::path target = fs::path(directory_) / name;
  const fs::path beside = fs::path(directory_) / (name + ".tmp");
  const fs::path replaced = fs::path(directory_) / (name + ".old");
  try {
    fs::create_directories(directory_);
    fs::remove_all(beside);
    fs::create_directory(beside);
    for (const auto& [file, bytes] : to_files(snapshot)) write_file((beside / file).string(), bytes);
    sync_directory(beside.string());
    // A directory cannot be renamed over another. If it ends between the two steps, .old is still there.
    fs::remove_all(replaced);
    if (fs::exists(target)) fs::rename(target, replaced);
    fs::rename(beside, target);
    sync_directory(directory_);
    fs::remove_all(replaced);
  } catch (const fs::filesystem_error& problem) {
    std::error_code ignored;
    fs::remove_all(beside, ignored);
    throw Error(
        concat("the snapshot ", target.string(), " could not be written: ", problem.code().message()));
  } catch (const Error& problem) {
    std::error_code ignored;
    fs::remove_all(beside, ignored);
    throw Error(concat("the snapshot ", target.string(), " could not be written: ", problem.what()));
  }
}

void SnapshotStore::save(const Snapshot& snapshot) {
  write_directory(step_name(snapshot.step), snapshot);
  std::vector<std::string> names = steps_newest_first();
  // A later one is damaged, or this run would have gone on from it: it takes no place from the valid ones.
  names.erase(names.begin(), std::find(names.begin(), names.end(), step_name(snapshot.step)));
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(step_prefix) && (name.ends_with(".tmp") || name.ends_with(".old")))
      fs::remove_all(entry.path(), ignored);
  }
  for (size_t i = static_cast<size_t>(keep_); i < names.size(); ++i)
    fs::remove_all(fs::path(directory_) / names[i], ignored);
}

void SnapshotStore::save_best(const Snapshot& snapshot) { write_directory(best_name, snapshot); }

std::optional<SnapshotFiles> SnapshotStore::newest(
    const std::function<void(const std::string&)>& report) const {
  for (const std::string& name : steps_newest_first()) {
    try {
      return read_directory(fs::path(directory_) / name);
    } catch (const UserError& problem) {
      report(problem.what());
    }
  }
  return std::nullopt;
}

Snapshot load_snapshot(const std::string& path) {
  const fs::path directory(path);
  require(fs::is_directory(directory), path,
          " is not a directory: give a snapshot, or a directory of snapshots");
  if (fs::exists(directory / state_file)) return from_files(read_directory(directory), path);
  for (const char* name : {"best", "best.old"}) {
    if (!fs::exists(directory / name / state_file)) continue;
    try {
      return from_files(read_directory(directory / name), (directory / name).string());
    } catch (const UserError& problem) {
      log_warning(problem.what());
    }
  }
  const auto files = SnapshotStore(path, 1).newest([](const std::string& problem) { log_warning(problem); });
  require(files.has_value(), path, " holds no valid snapshot");
  return from_files(*files, path);
}

}  // namespace lockstep
