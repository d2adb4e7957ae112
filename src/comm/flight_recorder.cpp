// SPDX-License-Identifier: Apache-2.0
#include "comm/flight_recorder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>

#include "core/error.h"
#include "core/file.h"

namespace lockstep {

struct FlightRecorder::Ring {
  std::atomic<uint64_t> sequence{0};
  FlightRecord records[capacity];
};

namespace {

int64_t wall_nanoseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace

FlightRecorder::FlightRecorder(const std::string& path) {
  if (path.empty()) {
    ring_ = std::make_shared<Ring>();
    return;
  }
  const auto memory = map_file(path, sizeof(Ring), true);
  ring_ = {memory, new (memory.get()) Ring};
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

std::vector<FlightRecord> FlightRecorder::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  auto ring = std::make_unique<Ring>();
  if (!file.read(reinterpret_cast<char*>(ring.get()), sizeof(Ring))) return {};
  std::vector<FlightRecord> records;
  for (const FlightRecord& record : ring->records)
    if (record.sequence != 0 && record.sequence <= ring->sequence.load()) records.push_back(record);
  std::ranges::sort(records, {}, &FlightRecord::sequence);
  return records;
}

std::string flight_path(const std::string& directory, int rank) {
  return concat(directory, "/flight.rank", rank, ".bin");
}

FlightRecord last_collective(const std::string& directory, int rank) {
  const std::vector<FlightRecord> records = FlightRecorder::read(flight_path(directory, rank));
  return records.empty() ? FlightRecord{} : records.back();
}

std::string who_is_behind(const std::string& directory, int ranks) {
  std::vector<FlightRecord> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(last_collective(directory, rank));
  const FlightRecord ahead = *std::ranges::max_element(all, {}, &FlightRecord::sequence);
  std::string report;
  for (int rank = 0; rank < ranks; ++rank) {
    const FlightRecord& last = all[static_cast<size_t>(rank)];
    const bool arrived = last.sequence == ahead.sequence;
    if (arrived && std::strcmp(last.operation, ahead.operation) == 0) continue;
    report += concat(report.empty() ? "" : "; ", "rank ", rank, " never entered collective ", ahead.sequence,
                     " (", ahead.operation, ", ", ahead.bytes, " bytes); ");
    report += last.sequence == 0 ? std::string("it recorded none")
                                 : concat("its last was ", last.sequence, " (", last.operation, ")");
  }
  return report;
}

}  // namespace lockstep
