// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <regex>

#include "dist/world.h"
#include "kernel_cases.h"
#include "measure.h"
#include "report.h"

using namespace lockstep;

namespace {

struct Options {
  std::string filter = ".";
  int threads = 1;
  double seconds = 0.1;
  bool append = false;
};

/// Times the case, its ceiling where that is a copy, and its peer, one after the other again and again.
std::vector<std::string> row_of(const KernelCase& one, double peak, const Options& options) {
  const Work work = one.prepare();
  const bool computes = work.flops > 0;
  std::vector<std::function<void()>> bodies = {work.run};
  if (!computes) bodies.push_back(make_copy(work.bytes, std::get<CpuStream>(current_stream())));
  if (work.peer) bodies.push_back(work.peer);
  const std::vector<Timing> timings = measure(bodies, options.seconds);

  const double amount = computes ? work.flops : static_cast<double>(work.bytes);
  const double rate = amount / timings[0].seconds;
  const double ceiling = computes ? peak : amount / timings[1].seconds;
  const double of_peer = work.peer ? amount / timings.back().seconds : 0.0;
  return {one.kernel,
          one.shape,
          fixed(timings[0].seconds * 1e6, 1),
          fixed(timings[0].spread_percent, 1),
          fixed(rate * 1e-9, 1),
          computes ? "GFLOP/s" : "GB/s",
          fixed(ceiling * 1e-9, 1),
          fixed(100.0 * rate / ceiling, 1),
          work.peer ? fixed(of_peer * 1e-9, 1) : "",
          work.peer ? fixed(rate / of_peer, 2) : ""};
}

std::regex filter_of(const std::string& text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error& problem) {
    throw UserError(concat("--filter ", text, ": ", problem.what()));
  }
}

int bench(const Options& options) {
  const std::regex filter = filter_of(options.filter);
  set_threads(options.threads);
  const double peak = peak_flops(std::get<CpuStream>(current_stream()));
  Report report("bench_kernels",
                {{"kernel", 26},
                 {"shape", 18},
                 {"us", 12},
                 {"spread", 8},
                 {"rate"},
                 {"unit"},
                 {"ceiling"},
                 {"percent"},
                 {"eigen_rate", 12},
                 {"vs_eigen"}},
                {.ranks = 1, .threads = options.threads});
  std::vector<KernelCase> cases = matmul_cases();
  for (KernelCase& other : other_cases()) cases.push_back(std::move(other));
  for (const KernelCase& one : cases)
    if (std::regex_search(one.kernel + " " + one.shape, filter)) report.add(row_of(one, peak, options));
  if (options.append) report.append();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Every kernel of a training step beside its ceiling: an FMA loop or a copy, measured in the same run");
  Options options;
  app.add_option("--filter", options.filter, "regular expression of \"kernel shape\"")->capture_default_str();
  app.add_option("--threads", options.threads, "of the kernels and their ceilings; Eigen has one")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "of each measurement")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--append", options.append, "add the rows to bench/results/bench_kernels.csv");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? 0 : 2;
  }
  return run_program([&] { return bench(options); });
}
