// SPDX-License-Identifier: Apache-2.0
#include "lockstep/snapshot/snapshot_store.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/log.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/json/json_field.h"
#include "lockstep/snapshot/snapshot_options.h"

namespace lockstep {
namespace {

constexpr const char* step_prefix = "step-";
constexpr const char* best_name = "best";
constexpr const char* best_prefix = "best-";
constexpr const char* failed_step_file = "failed-step.json";
constexpr std::chrono::milliseconds pause_between_reads{500};
constexpr size_t most_failed_step_bytes = 4096;

/// Returns "step-00001000" for "step-" and 1000.
std::string numbered(const std::string& prefix, int64_t step) { return prefix + zero_padded(step, 8); }

/// Returns the step in a name that numbered() makes; nothing for any other name.
std::optional<int64_t> number_of(const std::string& name, const std::string& prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::optional<int64_t> number = number_in<int64_t>(std::string_view(name).substr(prefix.size()));
  return number && *number >= 0 && name == numbered(prefix, *number) ? number : std::nullopt;
}

/// Returns the name of the group that a writer left unfinished or replaced under the name `left`, as
/// FolderStore names it: "<group>.tmp", "<group>.old" or "<group>.<process>.tmp"; empty for another name.
std::string group_of_leftover(const std::string& left) {
  const bool is_old = left.ends_with(".old"), is_unfinished = left.ends_with(".tmp");
  if (!is_old && !is_unfinished) return "";
  const std::string name = left.substr(0, left.size() - 4), group = name.substr(0, name.find('.'));
  const std::string mark = name.substr(group.size());
  const size_t dash = mark.find('-');
  const auto is_number = [&](size_t begin, size_t end) {
    return begin < end && end <= mark.size() && mark.find_first_not_of("0123456789", begin) >= end;
  };
  const bool is_mark =
      is_unfinished && dash != std::string::npos && is_number(1, dash) && is_number(dash + 1, mark.size());
  return mark.empty() || is_mark ? group : "";
}

/// Runs the body and adds the name of the snapshot to its errors.
template <class Body>
auto naming(const std::string& name, Body body) {
  try {
    return body();
  } catch (const Error& problem) {
    throw Error(concat("the snapshot ", name, " could not be written: ", problem.what()));
  }
}

/// Opens a snapshot. In a bucket, damage counts only if a second read finds it too: a proxy may have cut a
/// reply short, and an object may be missing for a moment.
StoredSnapshot read_snapshot(const std::shared_ptr<ObjectStore>& store, const std::string& group) {
  try {
    return {store, group};
  } catch (const UserError&) {
    if (store->has_atomic_groups()) throw;
  }
  std::this_thread::sleep_for(pause_between_reads);
  return {store, group};
}

}  // namespace

SnapshotStore::SnapshotStore(const std::string& path, int64_t keep, std::function<void()> guard)
    : store_(open_store(path)), keep_(keep) {
  expect(keep_ >= 1, "snapshot.keep is ", keep_);
  store_->set_own_files([texts = text_files_](const std::string& name) {
    return is_snapshot_file(name) || texts->contains(name);
  });
  store_->set_guard(std::move(guard));
}

std::map<std::string, SnapshotStore::Found> SnapshotStore::groups(const std::string& prefix) const {
  std::map<std::string, Found> found;
  for (const std::string& key : store_->list(prefix)) {
    const size_t slash = key.find('/');
    if (slash == std::string::npos) continue;
    const std::string file = key.substr(slash + 1);
    Found& group = found[key.substr(0, slash)];
    group.has_files |= is_snapshot_file(file) || text_files_->contains(file);
    group.has_state |= file == state_file;
  }
  return found;
}

std::vector<std::string> SnapshotStore::snapshots_newest_first(const std::string& prefix) const {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const auto& [name, group] : groups(prefix)) {
    const std::optional<int64_t> number = number_of(name, prefix);
    // An atomic group without a state has lost it. It stays in the list, so that the damage is reported.
    const bool is_snapshot = group.has_state || (group.has_files && store_->has_atomic_groups());
    if (number && is_snapshot) found.emplace_back(*number, name);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  for (auto& [step, name] : found) names.push_back(std::move(name));
  return names;
}

void SnapshotStore::try_to_write() {
  const std::string key = concat("write-test-", process_mark());
  store_->put_text(key, "test");
  store_->remove(key);
}

std::vector<std::string> SnapshotStore::names() const {
  std::vector<std::string> names = snapshots_newest_first(step_prefix);
  for (const std::string& name : snapshots_newest_first(best_prefix)) names.push_back(name);
  if (store_->has_atomic_groups() && groups(best_name)[best_name].has_files) names.emplace_back(best_name);
  return names;
}

std::string SnapshotStore::group_of(Kind kind, int64_t step) const {
  if (kind == Kind::step) return numbered(step_prefix, step);
  // A bucket cannot rename. The old snapshot stays until the new one is whole.
  return store_->has_atomic_groups() ? best_name : numbered(best_prefix, step);
}

std::string SnapshotStore::begin(Kind kind, int64_t step, const std::vector<SnapshotFile>& files) {
  std::vector<PlannedObject> objects;
  for (const SnapshotFile& file : files) {
    objects.push_back({file.key, file.bytes});
    if (file.tensors.empty()) text_files_->insert(file.key);
  }
  return naming(name_of(kind, step),
                [&] { return store_->begin_group(group_of(kind, step), objects, state_file); });
}

std::string SnapshotStore::write(Kind kind, int64_t step, const std::string& begun,
                                 const std::vector<SnapshotFile>& files, const RankShare& share,
                                 const std::byte* memory) {
  std::vector<std::string> written;
  for (size_t f = 0; f < files.size(); ++f) {
    const FileShare part = part_of(files, f, share, memory);
    written.push_back(part.sums);
    written.push_back(part.parts.empty() ? "" : naming(name_of(kind, step), [&] {
      return store_->write_parts(group_of(kind, step), begun, files[f].key, part.parts);
    }));
  }
  return pack(written);
}

void SnapshotStore::end(Kind kind, const Snapshot& snapshot, const std::string& begun,
                        const std::vector<SnapshotFile>& files, const std::vector<std::string>& written) {
  std::vector<TensorSums> sums;
  std::vector<std::string> receipts;
  for (const SnapshotFile& file : files) {
    sums.emplace_back(file.tensors);
    sums.back().take(std::ssize(file.header), std::as_bytes(std::span(file.zeros)));
  }
  for (const std::string& rank : written) {
    const std::vector<std::string> of_files = unpack(rank);
    for (size_t f = 0; f < files.size(); ++f) {
      sums[f].add(of_files.at(2 * f));
      if (const std::string& receipt = of_files.at(2 * f + 1); !receipt.empty()) receipts.push_back(receipt);
    }
  }
  const std::string group = group_of(kind, snapshot.step);
  naming(store_->name_of(group), [&] {
    const std::string state = state_text(snapshot, files, sums);
    store_->end_group(group, begun, receipts,
                      {.key = state_file, .pieces = {std::as_bytes(std::span(state))}});
  });
  const FailedStep failed = kind == Kind::step ? failed_step() : FailedStep();
  if (failed.passed_over == snapshot.step) set_failed_step({.step = failed.step});
  try {
    remove_older(kind, group);
  } catch (const Error& problem) {
    // The new snapshot is safe, and the old ones only take up space.
    log_warning(
        concat("older snapshots in ", store_->name_of(""), " could not be deleted: ", problem.what()));
  }
}

void SnapshotStore::amend(const Snapshot& snapshot) {
  const std::string group = group_of(Kind::step, snapshot.step);
  naming(store_->name_of(group), [&] {
    store_->put_text(concat(group, "/", state_file),
                     amended_state_text(StoredSnapshot(store_, group).text(), snapshot));
  });
}

SnapshotStore::FailedStep SnapshotStore::failed_step() const {
  const std::string text = store_->get(failed_step_file, 0, most_failed_step_bytes).value_or("");
  try {
    const JsonField<nlohmann::json> json(text, failed_step_file, most_failed_step_bytes);
    return {.step = json["failed_step"].whole(), .passed_over = json["passed_over"].whole()};
  } catch (const UserError&) {
    return {};  // The file is only a help. A damaged one counts as none.
  }
}

void SnapshotStore::set_failed_step(const FailedStep& failed) {
  const nlohmann::ordered_json json = {{"failed_step", failed.step}, {"passed_over", failed.passed_over}};
  store_->put_text(failed_step_file, json.dump() + "\n");
}

void SnapshotStore::drop(Kind kind, int64_t step, const std::string& begun) {
  store_->drop_group(group_of(kind, step), begun);
}

/// Removes what killed writers left: unfinished snapshots, and replaced ones that were not deleted yet.
void SnapshotStore::remove_leftovers(Kind kind) {
  const std::string prefix = kind == Kind::step ? step_prefix : best_name;
  const auto is_ours = [&](const std::string& group) {
    return number_of(group, kind == Kind::step ? step_prefix : best_prefix) ||
           (kind == Kind::best && group == best_name && store_->has_atomic_groups());
  };
  for (const auto& [name, group] : groups(prefix)) {
    const bool is_beside = store_->has_atomic_groups() && is_ours(group_of_leftover(name));
    const bool is_unfinished = !group.has_state && !store_->has_atomic_groups() && is_ours(name);
    if (is_beside || is_unfinished) store_->remove_group(name, state_file);
  }
}

void SnapshotStore::remove_older(Kind kind, const std::string& saved) {
  remove_leftovers(kind);
  if (kind == Kind::best && store_->has_atomic_groups()) return;
  std::vector<std::string> names = snapshots_newest_first(kind == Kind::step ? step_prefix : best_prefix);
  if (kind == Kind::best) {
    std::erase(names, saved);
    for (const std::string& name : names) store_->remove_group(name, state_file);
    return;
  }
  // Later snapshots do not count: they are damaged, otherwise this run would have resumed from them.
  names.erase(names.begin(), std::find(names.begin(), names.end(), saved));
  for (size_t i = static_cast<size_t>(keep_); i < names.size(); ++i)
    store_->remove_group(names[i], state_file);
}

bool is_shared_by_all(const World& world, const std::string& path) {
  if (world.size() == 1 || path.empty()) return true;
  const std::string mark = world.communicator().broadcast_text(concat("write-test-", process_mark()), 0);
  const auto object = [&](int rank) { return concat(mark, "-", rank); };
  std::string problem;
  const auto attempt = [&](auto body) {
    try {
      if (problem.empty()) body();
    } catch (const std::exception& error) {
      problem = error.what();
    }
  };
  const std::shared_ptr<ObjectStore> store = open_store(path);
  const auto put = [&] { store->put_text(object(world.rank()), object(world.rank())); };
  if (world.is_first()) attempt(put);
  world.communicator().barrier();
  if (!world.is_first()) {
    attempt([&] { require(store->get(object(0)) == object(0), "it does not see the object of rank 0"); });
    attempt(put);
    attempt([&] { store->remove(object(world.rank())); });
  }
  const std::vector<std::string> problems = world.communicator().all_gather_text(problem);
  if (world.is_first()) {
    attempt([&] { store->remove(object(0)); });
    for (size_t rank = 0; rank < problems.size(); ++rank) {
      if (problems[rank].empty()) continue;
      log_info(concat("snapshots: through rank 0, because rank ", rank, " cannot use ", path, ": ",
                      problems[rank]));
      break;
    }
  }
  return std::ranges::all_of(problems, [](const std::string& one) { return one.empty(); });
}

/// Lists the snapshots once and returns the newest valid one as newest() does. Adds the problems of the
/// others.
std::optional<StoredSnapshot> SnapshotStore::newest_listed(int64_t end,
                                                           std::vector<std::string>& problems) const {
  const int64_t passed_over = failed_step().passed_over;
  for (const std::string& name : snapshots_newest_first(step_prefix)) {
    const int64_t step = *number_of(name, step_prefix);
    if (step >= end || step == passed_over) continue;
    std::optional<StoredSnapshot> found;
    try {
      found.emplace(read_snapshot(store_, name));
    } catch (const UserError& problem) {
      problems.emplace_back(problem.what());
      continue;
    }
    found->require_readable();
    if (found->state().step == step) return found;
    problems.push_back(
        concat(found->name(), "/", state_file, " is damaged: it is that of step ", found->state().step));
  }
  return std::nullopt;
}

std::optional<StoredSnapshot> SnapshotStore::newest(const std::function<void(const std::string&)>& report,
                                                    int64_t end) const {
  std::vector<std::string> problems;
  std::optional<StoredSnapshot> found = newest_listed(end, problems);
  // An earlier start of the run may have deleted a snapshot after it was listed, and written a newer one.
  if (!found && !problems.empty() && !store_->has_atomic_groups()) {
    std::this_thread::sleep_for(pause_between_reads);
    problems.clear();
    found = newest_listed(end, problems);
  }
  for (const std::string& problem : problems) report(problem);
  return found;
}

/// Returns where a folder's run keeps its snapshots, or the folder itself if it is not that of a run.
std::string snapshots_of_run(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path inside = fs::path(folder) / "snapshots", settings = fs::path(folder) / "config.ini";
  std::error_code ignored;
  if (fs::is_directory(inside, ignored) && !SnapshotStore(inside.string(), 1).names().empty())
    return inside.string();
  if (!fs::is_regular_file(settings, ignored)) return folder;
  const std::string path = place_of_snapshots(read_named_file(settings.string()), settings.string(), folder);
  require(!path.empty(), folder,
          ": this run did not keep its model (snapshot.path = none in its config.ini)");
  return path;
}

StoredSnapshot find_snapshot(const std::string& place) {
  const std::string path = local_path(place) ? snapshots_of_run(*local_path(place)) : place;
  const SnapshotStore snapshots(path, 1);
  std::vector<std::string> best = snapshots.snapshots_newest_first(best_prefix);
  for (const char* name : {"best", "best.old"})
    if (snapshots.store_->exists(concat(name, "/", state_file))) best.emplace_back(name);
  const bool is_one = snapshots.store_->exists(state_file);
  if (is_one) best = {""};
  for (const std::string& name : best) {
    try {
      StoredSnapshot found = read_snapshot(snapshots.store_, name);
      found.require_readable();
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
