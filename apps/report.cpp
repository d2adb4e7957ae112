// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/report.h"

#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/program/command_line.h"
#include "lockstep/program/program.h"

using namespace lockstep;

namespace {

struct Options {
  std::vector<std::string> runs;
  std::string output;
};

void describe(CommandLine& line, Options& options) {
  line.add("RUN", options.runs, "the folders of runs (log.dir), which may still work; at most 12",
           {.is_required = true, .is_path = true, .takes_several = true});
  line.add("-o,--output", options.output,
           "the file to write; empty: report.html in the folder of the first run",
           {.type = "FILE", .is_path = true});
}

int report(const Options& options) {
  const std::string path = options.output.empty() ? options.runs.front() + "/report.html" : options.output;
  const std::string html = report_page(read_runs(options.runs));
  try {
    write_output_to(path, html);
  } catch (const Error& problem) {
    throw UserError(concat(problem.what(), "; name another file by --output"));
  }
  write_output(concat(path, ": ", bytes_text(static_cast<double>(html.size())), "\n"));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line(
      "Writes a page about runs: loss, validation, speed, memory, a step's time, restarts and audits. "
      "Several runs are drawn over each other. The page loads nothing, so it opens without a network");
  Options options;
  describe(line, options);
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  return run_alone([&] { return report(options); });
}
