// SPDX-License-Identifier: Apache-2.0
// The flight record of a killed rank. The input repeats up to the size of a whole record, less its first
// byte.
#include "fuzz/fuzz.h"
#include "lockstep/comm/flight_recorder.h"
#include "lockstep/elastic/messages.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes < 2) return 0;
  static const fuzz::TemporaryFolder folder;
  std::string record;
  while (record.size() < 16 + FlightRecorder::capacity * sizeof(FlightRecord))
    record += fuzz::text_of(data + 1, bytes - 1);
  record.resize(16 + FlightRecorder::capacity * sizeof(FlightRecord) - data[0]);
  folder.set(flight_path("", 0).substr(1), record);
  who_is_behind(folder.path(), 2, 1);
  RankReport report;
  if (const auto last = last_collective(folder.path(), 0)) report.last_collective = last->record;
  to_json(report);
  return 0;
}
