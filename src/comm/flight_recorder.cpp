// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/flight_recorder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <span>
#include <unistd.h>
#include <utility>

#include "lockstep/core/descriptor.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"

namespace lockstep {

struct FlightRecorder::Ring {
  int64_t job = 0;
  std::atomic<uint64_t> sequence{0};
  FlightRecord records[capacity];
};

namespace {

int64_t wall_nanoseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace

FlightRecorder::FlightRecorder(const std::string& path, int64_t job) {
  if (path.empty()) {
    ring_ = std::make_shared<Ring>();
    return;
  }
  const auto memory = map_file(path, sizeof(Ring), true);
  ring_ = {memory, new (memory.get()) Ring};
  ring_->job = job;
}

uint64_t FlightRecorder::begin(const char* operation, int64_t bytes) {
  const uint64_t sequence = ring_->sequence.load(std::memory_order_relaxed) + 1;
  FlightRecord& record = ring_->records[sequence % capacity];
  record = {.sequence = sequence, .bytes = bytes, .begin_nanoseconds = wall_nanoseconds()};
  std::strncpy(record.operation, operation, sizeof(record.operation) - 1);
  ring_->sequence.store(sequence, std::memory_order_release);
  return sequence;
}

void FlightRecorder::end(uint64_t sequence) {
  // Newer collectives may have overwritten the record in the ring.
  if (sequence + capacity <= this->sequence()) return;
  std::atomic_ref(ring_->records[sequence % capacity].end_nanoseconds).store(wall_nanoseconds());
}

uint64_t FlightRecorder::sequence() const { return ring_->sequence.load(std::memory_order_relaxed); }

std::string flight_path(const std::string& directory, int rank) {
  return concat(directory, "/flight.rank", rank, ".bin");
}

std::optional<LastCollective> last_collective(const std::string& directory, int rank) {
  const Descriptor file(::open(flight_path(directory, rank).c_str(), O_RDONLY | O_CLOEXEC));
  const auto read_at = [&](size_t offset, void* to, size_t bytes) {
    return ::pread(file.get(), to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
  };
  struct {
    int64_t job;
    uint64_t sequence;
  } head;
  if (!file || !read_at(0, &head, sizeof(head))) return {};
  LastCollective last{.job = head.job, .record = {}};
  if (head.sequence == 0) return last;
  const size_t place = head.sequence % FlightRecorder::capacity;
  if (!read_at(sizeof(head) + place * sizeof(FlightRecord), &last.record, sizeof(FlightRecord))) return {};
  last.record.operation[sizeof(last.record.operation) - 1] = 0;
  if (last.record.sequence != head.sequence) return {};
  return last;
}

std::string ranks_behind(const std::map<int, FlightRecord>& last_of_rank) {
  using Collective = std::pair<uint64_t, std::string>;
  const auto collective_of = [](const FlightRecord& record) {
    return Collective(record.sequence, record.operation);
  };
  // Of several collectives with the highest number, it is the one that most ranks have entered.
  std::map<Collective, int> ranks_in;
  for (const auto& [rank, last] : last_of_rank) ++ranks_in[collective_of(last)];
  const auto ahead = std::ranges::max_element(
      ranks_in, {}, [](const auto& one) { return std::pair(one.first.first, one.second); });
  std::vector<std::pair<int, FlightRecord>> behind;
  FlightRecord missed;
  for (const auto& [rank, last] : last_of_rank)
    if (collective_of(last) == ahead->first)
      missed = last;
    else
      behind.emplace_back(rank, last);
  // The furthest behind is the likeliest cause.
  std::ranges::stable_sort(behind, {}, [](const auto& one) { return one.second.sequence; });
  constexpr size_t most_named = 5;
  std::string report;
  for (const auto& [rank, last] : std::span(behind).first(std::min(behind.size(), most_named)))
    report += concat(report.empty() ? "" : "; ", "rank ", rank, " never entered collective ", missed.sequence,
                     " (", missed.operation, ", ", missed.bytes, " bytes), ",
                     last.sequence == 0 ? std::string("it recorded none")
                                        : concat("its last was ", last.sequence, " (", last.operation, ")"));
  if (behind.size() <= most_named) return report;
  const size_t more = behind.size() - most_named;
  return concat(report, "; and ", more, more == 1 ? " more rank" : " more ranks");
}

std::string who_is_behind(const std::string& directory, int ranks, int64_t job) {
  std::map<int, FlightRecord> known;
  for (int rank = 0; rank < ranks; ++rank)
    if (const auto last = last_collective(directory, rank); last && last->job == job)
      known[rank] = last->record;
  const std::string report = ranks_behind(known);
  const int unknown = ranks - static_cast<int>(known.size());
  if (!report.empty() || unknown == 0) return report;
  return concat("the flight records of ", unknown, " of ", ranks, " ranks are not in ", directory,
                ", which hosts may not share");
}

}  // namespace lockstep
