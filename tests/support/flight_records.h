// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/comm/flight_recorder.h"

namespace lockstep {

/// Returns the records in a rank's file, oldest first; empty if it cannot be read.
inline std::vector<FlightRecord> flight_records_in(const std::string& path) {
  constexpr std::streamoff job_and_sequence_bytes = 16;
  std::ifstream file(path, std::ios::binary);
  std::vector<FlightRecord> records(FlightRecorder::capacity);
  file.seekg(job_and_sequence_bytes);
  if (!file.read(reinterpret_cast<char*>(records.data()),
                 static_cast<std::streamsize>(records.size() * sizeof(FlightRecord))))
    return {};
  std::erase_if(records, [](const FlightRecord& record) { return record.sequence == 0; });
  std::ranges::sort(records, {}, &FlightRecord::sequence);
  return records;
}

}  // namespace lockstep
