// SPDX-License-Identifier: Apache-2.0
#include "snapshot/snapshot.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iomanip>
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

constexpr int64_t newest_format = 2;
constexpr int64_t piece_bytes = int64_t{8} << 20;
constexpr const char* step_prefix = "step-";
constexpr const char* best_name = "best";
constexpr const char* best_prefix = "best-";

/// The state with a checksum of its own text in front. Only exactly this text is accepted back.
std::string seal(const Json& state) {
  return Json{{"checksum", hash_text(hash_of(state.dump()))}, {"state", state}}.dump(2) + "\n";
}

Json unseal(const std::string& bytes) {
  const Json sealed = Json::parse(bytes);
  Json state = sealed.at("state");
  require(seal(state) == bytes, "its checksum does not match");
  return state;
}

/// "step-", 1000 -> "step-00001000".
std::string numbered(const std::string& prefix, int64_t step) {
  return concat(prefix, std::setfill('0'), std::setw(8), step);
}

/// Of a file; a snapshot that lies at the store's own place has no group.
std::string key_of(const std::string& group, const std::string& file) {
  return group.empty() ? file : concat(group, "/", file);
}

std::optional<GradScale> grad_scale_of(const Json& state) {
  const auto found = state.find("grad_scaler");
  if (found == state.end()) return std::nullopt;
  return GradScale{.scale = found->at("scale"),
                   .growth_tracker = found->at("growth_tracker"),
                   .skipped_steps = found->at("skipped_steps")};
}

std::optional<int64_t> number_of(const std::string& name, const std::string& prefix) {
  const std::string digits = name.substr(std::min(prefix.size(), name.size()));
  const bool is_number =
      !digits.empty() && digits.size() < 19 && digits.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number) return std::nullopt;
  return std::stoll(digits);
}

}  // namespace

StoredSnapshot::StoredSnapshot(std::shared_ptr<ObjectStore> store, std::string group)
    : store_(std::move(store)), group_(std::move(group)), name_(store_->name_of(group_)) {
  const std::optional<std::string> text = store_->get(key_of(group_, state_file));
  require(text.has_value(), name_, "/", state_file, " is missing");
  text_ = *text;
  parse();
}

StoredSnapshot::StoredSnapshot(const std::string& text, const std::string& name) : name_(name), text_(text) {
  parse();
}

void StoredSnapshot::parse() {
  try {
    const Json state = unseal(text_);
    format_ = state.value("format", int64_t{1});
    if (format_ > newest_format) return;  // the rest may mean anything
    const Json& best = state.at("best_validation_loss");
    state_ = {.step = state.at("step"),
              .optimizer_steps = state.at("optimizer_steps"),
              .is_finished = state.at("finished"),
              .is_validation_pending = state.value("validation_pending", false),
              .best_validation_loss = best.is_null() ? std::nullopt : std::optional(best.get<double>()),
              .grad_scale = grad_scale_of(state),
              .configuration = state.at("configuration"),
              .artifacts = state.at("artifacts"),
              .matmul_plans = state.value("matmul_plans", "")};
    checksums_ = state.at("files");
  } catch (const std::exception& problem) {
    throw UserError(concat(name_, "/", state_file, " is damaged: ", problem.what()));
  }
}

void StoredSnapshot::read(const std::string& file,
                          const std::function<void(std::span<const std::byte>)>& take) const {
  const std::string key = key_of(group_, file);
  Hasher hasher;
  std::optional<std::string> piece;
  for (int64_t begin = 0; !piece || std::ssize(*piece) == piece_bytes; begin += piece_bytes) {
    piece = store_->get(key, begin, piece_bytes);
    require(piece.has_value(), store_->name_of(key), " is missing");
    const auto bytes = std::as_bytes(std::span(*piece));
    hasher.add(bytes);
    take(bytes);
  }
  const auto sum = checksums_.find(file);
  require(sum != checksums_.end() && hash_text(hasher.value()) == sum->second, store_->name_of(key),
          " is damaged: its checksum does not match");
}

void StoredSnapshot::require_readable() const {
  require(format_ <= newest_format, name_, " was written by a newer version of this program (format ",
          format_, "; this one reads up to ", newest_format, "): use that version, or another place");
}

void StoredSnapshot::verify() const {
  if (format_ > newest_format) return;
  for (const char* file : {model_file, optimizer_file}) {
    if (store_->has_atomic_groups())
      read(file, [](std::span<const std::byte>) {});
    else
      require(store_->exists(key_of(group_, file)), store_->name_of(key_of(group_, file)), " is missing");
  }
}

SnapshotStore::SnapshotStore(const std::string& path, int64_t keep, std::function<void()> guard)
    : store_(open_store(path)), keep_(keep) {
  expect(keep_ >= 1, "snapshot.keep is ", keep_);
  store_->set_guard(std::move(guard));
}

std::map<std::string, bool> SnapshotStore::groups(const std::string& prefix) const {
  std::map<std::string, bool> found;
  for (const std::string& key : store_->list(prefix)) {
    const size_t slash = key.find('/');
    if (slash != std::string::npos) found[key.substr(0, slash)] |= key.substr(slash + 1) == state_file;
  }
  return found;
}

std::vector<std::string> SnapshotStore::snapshots_newest_first(const std::string& prefix) const {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const auto& [name, has_state] : groups(prefix)) {
    const std::optional<int64_t> number = number_of(name, prefix);
    // Where a group appears at once, one without its state has lost it, which has to be said.
    if (number && (has_state || store_->has_atomic_groups())) found.emplace_back(*number, name);
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

void SnapshotStore::write(const std::string& group, const Snapshot& snapshot) {
  const SafeTensorsPieces model({snapshot.model, {{"format", "pt"}}}), optimizer({snapshot.optimizer, {}});
  Json state = {{"format", newest_format},
                {"step", snapshot.step},
                {"optimizer_steps", snapshot.optimizer_steps},
                {"finished", snapshot.is_finished},
                {"validation_pending", snapshot.is_validation_pending},
                {"best_validation_loss", nullptr},
                {"configuration", snapshot.configuration},
                {"artifacts", snapshot.artifacts},
                {"matmul_plans", snapshot.matmul_plans}};
  if (snapshot.best_validation_loss) state["best_validation_loss"] = *snapshot.best_validation_loss;
  if (const auto& scaler = snapshot.grad_scale)
    state["grad_scaler"] = {{"scale", scaler->scale},
                            {"growth_tracker", scaler->growth_tracker},
                            {"skipped_steps", scaler->skipped_steps}};
  state["files"][model_file] = hash_text(hash_of(model.pieces()));
  state["files"][optimizer_file] = hash_text(hash_of(optimizer.pieces()));
  const std::string sealed = seal(state);
  // Tensors on the CPU are not copied; the state comes last.
  const std::array<Object, 3> files = {{{.key = model_file, .pieces = model.pieces()},
                                        {.key = optimizer_file, .pieces = optimizer.pieces()},
                                        {.key = state_file, .pieces = {std::as_bytes(std::span(sealed))}}}};
  try {
    store_->put_group(group, files);
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
  for (const auto& [name, has_state] : groups(prefix)) {
    const bool is_beside = name.ends_with(".tmp") || name.ends_with(".old");
    const bool is_unfinished = !has_state && !store_->has_atomic_groups();
    if (is_beside || is_unfinished) store_->remove_group(name, state_file);
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
    for (const auto& [name, has_state] : groups(best_prefix))
      if (name != saved) store_->remove_group(name, state_file);
  });
}

std::optional<StoredSnapshot> SnapshotStore::newest(const std::function<void(const std::string&)>& report,
                                                    int64_t end, bool verified) const {
  for (const std::string& name : snapshots_newest_first(step_prefix)) {
    if (*number_of(name, step_prefix) >= end) continue;
    std::optional<StoredSnapshot> found;
    try {
      found.emplace(store_, name);
      if (verified) found->verify();
    } catch (const UserError& problem) {
      report(problem.what());
      continue;
    }
    found->require_readable();
    return found;
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
      config_of_earlier_run(read_config_file(settings.string()), settings.string()).snapshot.path;
  require(!path.empty(), folder,
          ": this run did not keep its model (snapshot.path = none in its config.ini)");
  return path;
}

StoredSnapshot find_snapshot(const std::string& place) {
  const std::string path = local_path(place) ? snapshots_of_run(*local_path(place)) : place;
  const SnapshotStore snapshots(path, 1);
  std::vector<std::string> best = snapshots.snapshots_newest_first(best_prefix);
  for (const char* name : {"best", "best.old"})
    if (snapshots.store_->exists(key_of(name, state_file))) best.emplace_back(name);
  const bool is_one = snapshots.store_->exists(state_file);
  if (is_one) best = {""};
  for (const std::string& name : best) {
    try {
      StoredSnapshot found(snapshots.store_, name);
      found.require_readable();
      found.verify();
      return found;
    } catch (const UserError& problem) {
      if (is_one) throw;
      log_warning(problem.what());
    }
  }
  auto found = snapshots.newest([](const std::string& problem) { log_warning(problem); });
  require(
      found.has_value(), path,
      " holds no valid snapshot: give the folder of a run, a snapshot, or a folder or prefix of snapshots");
  return *found;
}

}  // namespace lockstep
