// SPDX-License-Identifier: Apache-2.0
// A metrics.jsonl that a second start reads, cuts and continues.
#include "lockstep/metrics/metrics.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const fuzz::TemporaryFolder folder;
  folder.set("metrics.jsonl", fuzz::text_of(data, bytes));
  const std::string path = folder.path() + "/metrics.jsonl";
  const MetricsEnd end = read_metrics_end(path);
  MetricsWriter writer(path, end.step);
  writer.write({.step = 77});
  writer.add_validation_loss(77, 1.5);
  fuzz::check(read_metrics_end(path).step == 77, "the line of step 77 is not read");
  return 0;
}
