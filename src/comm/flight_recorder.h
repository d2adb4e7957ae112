// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// One collective as a rank saw it.
struct FlightRecord {
  uint64_t sequence = 0;  ///< number of the collective on this rank, from 1
  char operation[24] = {};
  int64_t bytes = 0;
  int64_t begin_nanoseconds = 0;  ///< wall clock
  int64_t end_nanoseconds = 0;    ///< 0 while it has not finished
};

/// The last collectives of one rank, in a ring that lives in a file mapped into memory, so that it survives
/// whatever kills the process. One thread begins collectives; anybody may read the file.
class FlightRecorder {
 public:
  static constexpr int capacity = 1024;

  /// With an empty path the ring is kept in memory only. Throws Error if the file cannot be made.
  explicit FlightRecorder(const std::string& path = "");
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Returns the number of the collective.
  uint64_t begin(const char* operation, int64_t bytes);
  /// Any thread may tell that a collective has ended.
  void end(uint64_t sequence);

  /// Collectives begun so far.
  uint64_t sequence() const;
  /// What the file of any rank tells, oldest first. Empty if it cannot be read.
  static std::vector<FlightRecord> read(const std::string& path);

 private:
  struct Ring;
  std::shared_ptr<Ring> ring_;
};

/// The file that rank's recorder keeps in a directory.
std::string flight_path(const std::string& directory, int rank);

/// What the file of a rank tells last; sequence 0 if nothing.
FlightRecord last_collective(const std::string& directory, int rank);

/// Who is behind, from the files of all ranks: "rank 1 never entered collective 17 (all_gather, 64 bytes);
/// its last was 16 (broadcast)". Empty if no file is there.
std::string who_is_behind(const std::string& directory, int ranks);

}  // namespace lockstep
