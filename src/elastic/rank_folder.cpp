// SPDX-License-Identifier: Apache-2.0
#include "elastic/rank_folder.h"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"

namespace lockstep {

RankFolder::RankFolder(const std::string& folder, int rank)
    : folder_(folder), rank_(rank), heartbeat_path_(concat(folder, "/heartbeat.rank", rank)) {
  const int problem = ::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
  expect(problem == 0, "cannot make ", folder, ": ", std::strerror(problem));
  struct stat status {};
  expect(::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid(),
         folder, " belongs to somebody else");
  page_ = map_heartbeat(heartbeat_path_, true);
}

RankFolder::~RankFolder() {
  ::unlink(heartbeat_path_.c_str());
  ::unlink(flight_path(folder_, rank_).c_str());
  ::rmdir(folder_.c_str());
}

FlightRecord RankFolder::last_collective() const {
  const std::vector<FlightRecord> records = FlightRecorder::read(flight_path(folder_, rank_));
  return records.empty() ? FlightRecord{} : records.back();
}

}  // namespace lockstep
