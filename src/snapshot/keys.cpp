// SPDX-License-Identifier: Apache-2.0
#include "lockstep/snapshot/keys.h"

#include <filesystem>

#include "lockstep/config/rows.h"

namespace lockstep {

std::string place_of_snapshots(const SnapshotOptions& options, const std::string& log_folder) {
  if (const auto* address = std::get_if<std::string>(&options.path)) return *address;
  if (std::get<NamedPlace>(options.path) == NamedPlace::none) return "";
  return (std::filesystem::path(log_folder) / "snapshots").string();
}

std::string place_of_snapshots(const std::string& ini, const std::string& name,
                               const std::string& log_folder) {
  return place_of_snapshots(snapshot_rows().in_ini(ini, name), log_folder);
}

KeyRows<SnapshotOptions> snapshot_rows() {
  using O = SnapshotOptions;
  constexpr auto collective = KeyClass::collective;
  KeyRows<O> rows("snapshot", "Snapshots");
  // A folder named auto or none is written ./auto or ./none.
  rows.add_path(
          "path", &O::path,
          {{"auto", NamedPlace::in_log_folder}, {"none", NamedPlace::none}, {"", NamedPlace::none}},
          collective,
          "folder or s3://bucket/prefix of the snapshots; auto: snapshots/ in log.dir; none: the trained "
          "model is not kept")
      .also_called({"checkpoint_dir"});
  rows.add("every_minutes", &O::every_minutes, collective, at_least(0), "minutes",
           "minutes between snapshots; 0: not by time. The last step always has one");
  rows.add("every_steps", &O::every_steps, collective, at_least(0), "steps",
           "steps between snapshots; 0: not by steps")
      .also_called({"save_every", "save_interval", "save_steps"});
  rows.add("keep", &O::keep, collective, at_least(1), "snapshots",
           "newest snapshots to keep, besides the best one")
      .also_called({"save_total_limit"});
  rows.add("resume", &O::resume,
           {{"auto", Resume::if_possible}, {"never", Resume::never}, {"required", Resume::required}},
           collective,
           "auto: resume an unfinished run in log.dir; keep a finished one, or move it aside if its settings "
           "differ. never: move any run aside. required: only resume")
      .also_called({"resume_from_checkpoint"});
  rows.add("wait_minutes", &O::wait_minutes, collective, at_least(0), "minutes",
           "wait this long for another run that writes to the same place. At least 10 for a bucket, under "
           "lockrun and after a requeue");
  return rows;
}

}  // namespace lockstep
