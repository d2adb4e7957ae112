// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

/// One collective as a rank saw it.
struct FlightRecord {
  uint64_t sequence = 0;  ///< number of the collective on this rank, from 1
  char operation[24] = {};
  int64_t bytes = 0;
  int64_t begin_nanoseconds = 0;  ///< wall clock
  int64_t end_nanoseconds = 0;    ///< 0 while it has not finished
};

namespace detail {

/// The last collectives of one rank, in a ring in a memory-mapped file. The file survives any end of the
/// process. One thread begins collectives; any process may read the file.
class FlightRecorder {
 public:
  static constexpr int capacity = 1024;

  /// Makes the file, or keeps the ring in memory only if the path is empty. Throws Error if that fails. `job`
  /// is a number that only the ranks of one run share.
  explicit FlightRecorder(const std::string& path = "", int64_t job = 0);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Records the beginning of a collective and returns its number.
  uint64_t begin(const char* operation, int64_t bytes);
  /// Records the end of a collective. Any thread may call it.
  void end(uint64_t sequence);

  /// Returns the number of collectives begun so far.
  uint64_t sequence() const;

 private:
  struct Ring;
  std::shared_ptr<Ring> ring_;
};

}  // namespace detail

using detail::FlightRecorder;

/// Returns the path of a rank's flight record in a directory.
std::string flight_path(const std::string& directory, int rank);

/// A rank's last collective; its sequence is 0 if the rank has begun none.
struct LastCollective {
  int64_t job = 0;
  FlightRecord record;
};
/// Reads it from the file of a rank, a few bytes of which suffice. Empty if the file is missing or torn.
std::optional<LastCollective> last_collective(const std::string& directory, int rank);

/// Returns which ranks are behind: "rank 1 never entered collective 17 (all_gather, 64 bytes), its last was
/// 16 (broadcast)". Names five at most. Empty if all ranks are in the same collective.
std::string ranks_behind(const std::map<int, FlightRecord>& last_of_rank);

/// Returns which ranks of a job are behind, from the files of all ranks. Ignores files that are missing, torn
/// or of another job. Reports their number if the others show no rank that is behind.
std::string who_is_behind(const std::string& directory, int ranks, int64_t job);

}  // namespace lockstep
