// SPDX-License-Identifier: Apache-2.0
#include "snapshot/snapshot.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "config/config.h"
#include "config/config_file.h"
#include "core/error.h"
#include "core/log.h"
#include "snapshot/parameters_hash.h"
#include "tensor/safetensors.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* model_file = "model.safetensors";
constexpr const char* optimizer_file = "optimizer.safetensors";
constexpr const char* state_file = "state.json";
constexpr const char* step_prefix = "step-";
constexpr const char* best_name = "best";
constexpr const char* best_prefix = "best-";

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

/// The files of a snapshot as pieces of memory, state.json last. Tensors on the CPU are not copied.
class SnapshotPieces {
 public:
  explicit SnapshotPieces(const Snapshot& snapshot)
      : model_({snapshot.model, {{"format", "pt"}}}), optimizer_({snapshot.optimizer, {}}) {
    Json state = {{"step", snapshot.step},
                  {"optimizer_steps", snapshot.optimizer_steps},
                  {"finished", snapshot.is_finished},
                  {"validation_pending", snapshot.is_validation_pending},
                  {"best_validation_loss", nullptr},
                  {"configuration", snapshot.configuration},
                  {"artifacts", snapshot.artifacts},
                  {"matmul_plans", snapshot.matmul_plans}};
    if (snapshot.best_validation_loss) state["best_validation_loss"] = *snapshot.best_validation_loss;
    state["files"][model_file] = hash_text(hash_of(model_.pieces()));
    state["files"][optimizer_file] = hash_text(hash_of(optimizer_.pieces()));
    state_ = seal(state);
  }

  std::vector<Object> objects() const {
    return {{.key = model_file, .pieces = model_.pieces()},
            {.key = optimizer_file, .pieces = optimizer_.pieces()},
            {.key = state_file, .pieces = {std::as_bytes(std::span(state_))}}};
  }

 private:
  SafeTensorsPieces model_;
  SafeTensorsPieces optimizer_;
  std::string state_;
};

/// "step-", 1000 -> "step-00001000".
std::string numbered(const std::string& prefix, int64_t step) {
  const std::string digits = std::to_string(step);
  return prefix + std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0') + digits;
}

std::optional<int64_t> number_of(const std::string& name, const std::string& prefix) {
  const std::string digits = name.substr(std::min(prefix.size(), name.size()));
  const bool is_number =
      !digits.empty() && digits.size() < 19 &&
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) return std::nullopt;
  return std::stoll(digits);
}

}  // namespace

SnapshotFiles to_files(const Snapshot& snapshot) {
  const SnapshotPieces file_pieces(snapshot);
  SnapshotFiles files;
  for (const Object& object : file_pieces.objects())
    for (const auto& piece : object.pieces)
      files[object.key].append(reinterpret_cast<const char*>(piece.data()), piece.size());
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
                      .is_validation_pending = state.value("validation_pending", false),
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
  } catch (const std::exception& problem) {
    throw UserError(concat(origin, "/", file, " is damaged: ", problem.what()));
  }
}

/// The keys that share the part before the slash.
struct SnapshotStore::Group {
  std::string name;
  bool has_state = false;
};

SnapshotStore::SnapshotStore(const std::string& path, int64_t keep, std::function<void()> guard)
    : store_(open_store(path)), keep_(keep) {
  expect(keep_ >= 1, "snapshot.keep is ", keep_);
  store_->set_guard(std::move(guard));
}

SnapshotStore::~SnapshotStore() = default;

std::vector<SnapshotStore::Group> SnapshotStore::groups(const std::string& prefix) const {
  std::vector<Group> found;
  for (const std::string& key : store_->list(prefix)) {
    const size_t slash = key.find('/');
    if (slash == std::string::npos) continue;
    const std::string name = key.substr(0, slash);
    if (found.empty() || found.back().name != name) found.push_back({.name = name});
    found.back().has_state |= key.substr(slash + 1) == state_file;
  }
  return found;
}

std::vector<std::string> SnapshotStore::snapshots_newest_first(const std::string& prefix) const {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const Group& group : groups(prefix)) {
    const std::optional<int64_t> number = number_of(group.name, prefix);
    // Where a group appears at once, one without its state has lost it, which has to be said.
    if (number && (group.has_state || store_->has_atomic_groups())) found.emplace_back(*number, group.name);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  for (auto& [step, name] : found) names.push_back(std::move(name));
  return names;
}

void SnapshotStore::try_to_write() {
  const std::string key = "write-test";
  const std::array contents = {std::as_bytes(std::span(key))};
  store_->put(key, contents);
  store_->remove(key);
}

bool SnapshotStore::holds_any() const {
  return !snapshots_newest_first(step_prefix).empty() || !groups(best_name).empty();
}

SnapshotFiles SnapshotStore::read(const std::string& group) const {
  SnapshotFiles files;
  for (const char* name : {model_file, optimizer_file, state_file}) {
    const std::string key = group.empty() ? name : concat(group, "/", name);
    auto bytes = store_->get(key);
    require(bytes.has_value(), store_->name_of(key), " is missing");
    files[name] = std::move(*bytes);
  }
  return files;
}

void SnapshotStore::write(const std::string& group, const Snapshot& snapshot) {
  const SnapshotPieces file_pieces(snapshot);
  try {
    store_->put_group(group, file_pieces.objects());
  } catch (const Error& problem) {
    throw Error(concat("the snapshot ", store_->name_of(group), " could not be written: ", problem.what()));
  }
}

/// Deletes what is no longer wanted. The snapshot is safe by then: what stays costs only room.
void SnapshotStore::make_room(const std::function<void()>& remove) const {
  try {
    remove();
  } catch (const Error& problem) {
    log_warning(
        concat("older snapshots in ", store_->name_of(""), " could not be deleted: ", problem.what()));
  }
}

/// What writers left that were killed before a snapshot was whole, or before the one that it replaced was
/// gone.
void SnapshotStore::remove_leftovers(const std::string& prefix) {
  for (const Group& group : groups(prefix)) {
    const bool is_beside = group.name.ends_with(".tmp") || group.name.ends_with(".old");
    const bool is_unfinished = !group.has_state && !store_->has_atomic_groups();
    if (is_beside || is_unfinished) store_->remove_group(group.name, state_file);
  }
}

void SnapshotStore::save(const Snapshot& snapshot) {
  const std::string saved = numbered(step_prefix, snapshot.step);
  write(saved, snapshot);
  make_room([&] {
    remove_leftovers(step_prefix);
    std::vector<std::string> names = snapshots_newest_first(step_prefix);
    // A later one is damaged, or this run would have gone on from it: it takes no place from the valid ones.
    names.erase(names.begin(), std::find(names.begin(), names.end(), saved));
    for (size_t i = static_cast<size_t>(keep_); i < names.size(); ++i)
      store_->remove_group(names[i], state_file);
  });
}

void SnapshotStore::save_best(const Snapshot& snapshot) {
  if (store_->has_atomic_groups()) {
    write(best_name, snapshot);
    make_room([&] { remove_leftovers(best_name); });
    return;
  }
  // In a bucket nothing is renamed: the old one stays until the new one is whole.
  const std::string saved = numbered(best_prefix, snapshot.step);
  write(saved, snapshot);
  make_room([&] {
    for (const Group& group : groups(best_prefix))
      if (group.name != saved) store_->remove_group(group.name, state_file);
  });
}

std::optional<SnapshotFiles> SnapshotStore::newest(
    const std::function<void(const std::string&)>& report) const {
  for (const std::string& name : snapshots_newest_first(step_prefix)) {
    try {
      SnapshotFiles files = read(name);
      from_files(files, store_->name_of(name));
      return files;
    } catch (const UserError& problem) {
      report(problem.what());
    }
  }
  return std::nullopt;
}

/// The folder or bucket in which the run of a folder keeps its snapshots; the folder itself where it is none
/// of a run.
std::string snapshots_of_run(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path inside = fs::path(folder) / "snapshots", settings = fs::path(folder) / "config.ini";
  std::error_code ignored;
  if (fs::is_directory(inside, ignored) && SnapshotStore(inside.string(), 1).holds_any())
    return inside.string();
  if (!fs::is_regular_file(settings, ignored)) return folder;
  const std::string path =
      config_from_ini(read_config_file(settings.string()), settings.string()).snapshot.path;
  require(!path.empty(), folder,
          ": this run did not keep its model (snapshot.path = none in its config.ini)");
  return path;
}

Snapshot load_snapshot(const std::string& place) {
  const std::string path = local_path(place) ? snapshots_of_run(*local_path(place)) : place;
  const SnapshotStore snapshots(path, 1);
  if (snapshots.store_->exists(state_file)) return from_files(snapshots.read(""), path);
  std::vector<std::string> best = snapshots.snapshots_newest_first(best_prefix);
  for (const char* name : {"best", "best.old"})
    if (snapshots.store_->exists(concat(name, "/", state_file))) best.emplace_back(name);
  for (const std::string& name : best) {
    try {
      return from_files(snapshots.read(name), snapshots.store_->name_of(name));
    } catch (const UserError& problem) {
      log_warning(problem.what());
    }
  }
  const auto files = snapshots.newest([](const std::string& problem) { log_warning(problem); });
  require(
      files.has_value(), path,
      " holds no valid snapshot: give the folder of a run, a snapshot, or a folder or prefix of snapshots");
  return from_files(*files, path);
}

}  // namespace lockstep
