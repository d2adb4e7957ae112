// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "core/heartbeat.h"
#include "dist/flight_recorder.h"

namespace lockstep {

/// A rank's files in the folder that the ranks of a host share while a generation runs. They go with this
/// object, and the folder with the last of them.
class RankFolder {
 public:
  /// Throws Error if the folder is somebody else's or cannot be made.
  RankFolder(const std::string& folder, int rank);
  ~RankFolder();
  RankFolder(const RankFolder&) = delete;
  RankFolder& operator=(const RankFolder&) = delete;

  const std::string& path() const { return folder_; }
  const std::string& heartbeat_path() const { return heartbeat_path_; }
  const HeartbeatPage& page() const { return *page_; }
  /// Sequence 0 if the rank has entered none.
  FlightRecord last_collective() const;

 private:
  std::string folder_;
  int rank_;
  std::string heartbeat_path_;
  std::shared_ptr<HeartbeatPage> page_;
};

}  // namespace lockstep
