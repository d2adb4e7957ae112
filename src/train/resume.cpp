// SPDX-License-Identifier: Apache-2.0
#include "train/resume.h"

#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include "core/heartbeat.h"
#include "core/log.h"
#include "nn/precision.h"
#include "store/object_store.h"
#include "tensor/create.h"

namespace lockstep {
namespace {

/// What rank 0 found, as texts that can be broadcast; empty if there is nothing to resume.
SnapshotFiles newest_on_first_rank(const Config& config, const World& world) {
  SnapshotFiles files;
  if (world.is_first()) {
    std::string damage;
    auto found =
        SnapshotStore(config.snapshot.path, config.snapshot.keep).newest([&](const std::string& problem) {
          log_warning(concat(problem, "; an older snapshot is tried"));
          damage = problem;
        });
    if (found) files = std::move(*found);
    // Starting over would overwrite what a person might still want to save.
    require(found || damage.empty(), "snapshot.path: no valid snapshot is left in ", config.snapshot.path,
            ": ", damage, "; move it away to start from scratch");
  }
  // Reading a large snapshot may take longer than any collective.
  world.communicator().set_timeout(std::numeric_limits<double>::infinity());
  SnapshotFiles received;
  const int64_t count = std::stoll(world.communicator().broadcast_text(std::to_string(files.size()), 0));
  auto next = files.begin();
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = world.communicator().broadcast_text(world.is_first() ? next->first : "", 0);
    received[name] = world.communicator().broadcast_text(world.is_first() ? next->second : "", 0);
    if (world.is_first()) ++next;
  }
  world.communicator().set_timeout(config.dist.timeout_s);
  return received;
}

/// Renames a folder that holds anything to <path>.1, or the first number that is free, so that nothing is
/// lost. A bucket cannot rename, so there its user has to decide.
void move_aside(const std::string& address) {
  namespace fs = std::filesystem;
  const std::optional<std::string> folder = local_path(address);
  if (!folder) {
    require(!SnapshotStore(address, 1).holds_any(), "snapshot.resume = never, but ", address,
            " holds snapshots of an earlier run; use another snapshot.path, or delete them (aws s3 rm "
            "--recursive ",
            address, ")");
    return;
  }
  const std::string& path = *folder;
  std::error_code problem;
  if (!fs::exists(path) || fs::is_empty(path, problem)) return;
  int number = 1;
  while (fs::exists(concat(path, ".", number))) ++number;
  fs::rename(path, concat(path, ".", number), problem);
  require(!problem, "snapshot.path: ", path, " cannot be renamed: ", problem.message());
  log_info(concat("the snapshots of an earlier run are now in ", path, ".", number));
}

void require_same_semantics(const Snapshot& snapshot, const Config& config) {
  const Config saved = config_from_ini(snapshot.configuration, "the snapshot's configuration");
  std::map<std::string, std::string> saved_values;
  for (const ConfigValue& value : config_values(saved)) saved_values[value.key] = value.value;
  for (const ConfigValue& value : config_values(config))
    require(value.key_class != KeyClass::semantic || saved_values[value.key] == value.value, value.key, " = ",
            value.value, ", but the snapshot in snapshot.path = ", config.snapshot.path, " was trained with ",
            value.key, " = ", saved_values[value.key], "; use that value, or another snapshot.path");
}

}  // namespace

std::optional<Snapshot> find_snapshot_to_resume(const Config& config, const World& world,
                                                const std::map<std::string, std::string>& artifacts) {
  if (config.snapshot.path.empty()) return std::nullopt;
  // What a run has done before a supervisor starts it again counts.
  if (config.snapshot.resume == "never" && restart_count() == 0) {
    if (world.is_first()) move_aside(config.snapshot.path);
    return std::nullopt;
  }
  const SnapshotFiles files = newest_on_first_rank(config, world);
  if (files.empty()) {
    require(config.snapshot.resume != "required", "snapshot.resume = required, but there is no snapshot in ",
            config.snapshot.path);
    return std::nullopt;
  }
  const Snapshot snapshot = from_files(files, config.snapshot.path);
  require_same_semantics(snapshot, config);
  for (const auto& [name, artifact] : artifacts)
    require(snapshot.artifacts.contains(name) && snapshot.artifacts.at(name) == artifact,
            "data.dataset: the ", name, " differs from that of the snapshot in ", config.snapshot.path);
  if (world.is_first())
    log_info(concat("resuming after step ", snapshot.step, " from ", config.snapshot.path));
  return snapshot;
}

void restore_tensors(const std::vector<NamedTensor>& saved, const std::vector<NamedTensor>& targets,
                     const std::string& what) {
  std::map<std::string, Tensor> by_name;
  for (const NamedTensor& tensor : saved) by_name[tensor.name] = tensor.tensor;
  for (const auto& [name, tensor] : targets) {
    const auto found = by_name.find(name);
    require(found != by_name.end(), what, " has no tensor ", name);
    require(found->second.shape() == tensor.shape() && found->second.dtype() == tensor.dtype(), what, ": ",
            name, " is ", found->second.dtype(), found->second.shape(), " where the model has ",
            tensor.dtype(), tensor.shape());
    copy(found->second, tensor);
  }
}

void restore(const Snapshot& snapshot, const std::vector<NamedTensor>& parameters, Optimizer& optimizer) {
  restore_tensors(snapshot.model, parameters, "the snapshot's model");
  refresh_compute_copies(parameters);
  restore_tensors(snapshot.optimizer, optimizer.state(), "the snapshot's optimizer");
  optimizer.set_steps_taken(snapshot.optimizer_steps);
}

}  // namespace lockstep
