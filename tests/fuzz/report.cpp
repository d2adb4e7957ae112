// SPDX-License-Identifier: Apache-2.0
// The files of a run that a report reads: metrics.jsonl, events.jsonl, a trace and config.ini.
#include "lockstep/report/report.h"

#include "fuzz/fuzz.h"
#include "report/well_formed.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const fuzz::TemporaryFolder folder;
  const std::vector<std::string> parts = fuzz::parts_of(fuzz::text_of(data, bytes), 4);
  const std::vector<const char*> files = {"metrics.jsonl", "events.jsonl", "trace-rank0.json", "config.ini"};
  for (size_t i = 0; i < files.size(); ++i) folder.set(files[i], parts[i]);
  const std::string html = report_page(read_runs({folder.path()}));
  fuzz::check(html.size() < 1'000'000, "a page of ", html.size(), " bytes");
  const std::string problem = problem_of_xml(html);
  fuzz::check(problem.empty(), "the page is not XML: ", problem);
  for (const std::string side : {"left:", "top:"})
    for (const char* wrong : {"nan", "-nan", "inf", "-inf"})
      fuzz::check(html.find("style=\"" + side + wrong) == std::string::npos, "a place that is no number");
  return 0;
}
