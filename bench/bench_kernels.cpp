// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <map>
#include <regex>

#include "gpu_rows.h"
#include "kernel_cases.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/text.h"
#include "lockstep/program/command_line.h"
#include "measure.h"
#include "report.h"

using namespace lockstep;

namespace {

struct Options {
  std::string device = "cpu";
  DType dtype = DType::bf16;
  std::string filter = ".";
  int threads = 1;
  double seconds = 0.1;
  bool quick = false;
  bool append = false;
};

/// Times the case, its copy ceiling and its peer, sample by sample in turns. A case without FLOPs has a copy
/// ceiling.
std::vector<std::string> cpu_row(const KernelCase& one, double peak, const Options& options) {
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
          fixed_text(timings[0].seconds * 1e6, 1),
          fixed_text(timings[0].spread_percent, 1),
          fixed_text(rate * 1e-9, 1),
          computes ? "GFLOP/s" : "GB/s",
          fixed_text(ceiling * 1e-9, 1),
          fixed_text(100.0 * rate / ceiling, 1),
          work.peer ? fixed_text(of_peer * 1e-9, 1) : "",
          work.peer ? fixed_text(rate / of_peer, 2) : ""};
}

/// Returns the cases that match --filter.
std::vector<KernelCase> cases_of(const CaseSizes& sizes, const Options& options) {
  std::regex filter;
  try {
    filter = std::regex(options.filter);
  } catch (const std::regex_error& problem) {
    throw UserError(concat("--filter ", options.filter, ": ", problem.what()));
  }
  std::vector<KernelCase> cases = matmul_cases(sizes);
  for (KernelCase& other : other_cases(sizes)) cases.push_back(std::move(other));
  for (KernelCase& other : llama_cases(sizes)) cases.push_back(std::move(other));
  for (KernelCase& other : function_cases(sizes)) cases.push_back(std::move(other));
  std::erase_if(
      cases, [&](const KernelCase& one) { return !std::regex_search(one.kernel + " " + one.shape, filter); });
  require(!cases.empty(), "--filter ", options.filter, ": no case matches; leave it out to see all cases");
  return cases;
}

int bench_cpu(const Options& options) {
  set_threads(options.threads);
  const std::vector<KernelCase> cases =
      cases_of(options.quick ? quick_sizes(DType::f32) : cpu_sizes(), options);
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
  for (const KernelCase& one : cases) report.add(cpu_row(one, peak, options));
  if (options.append) report.append();
  return 0;
}

/// Times all cases on the GPU. If a case fails (for example, out of memory) the others still run.
int bench_gpu(const Options& options) {
  set_threads(options.threads);
  set_current_stream(make_gpu_stream(0));
  const std::vector<KernelCase> cases =
      cases_of(options.quick ? quick_sizes(options.dtype) : gpu_sizes(options.dtype), options);
  GpuTiming timing{.seconds = options.seconds};
  if (options.quick)
    timing = {.seconds = 0,
              .sample_seconds = 0,
              .rotated_bytes = 1 << 16,
              .copied_bytes = 1 << 16,
              .product_extent = 64};
  const GpuRows rows(options.dtype, timing);
  GpuReport report("bench_kernels");
  int failed = 0;
  for (const KernelCase& one : cases) {
    try {
      report.add(rows.measure_case(one));
    } catch (const Error& problem) {
      std::cerr << one.kernel << " " << one.shape << ": " << problem.what() << std::endl;
      ++failed;
    }
    release_cached_memory(current_stream());
  }
  if (options.append) report.append();
  return failed > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Times every kernel of a training step and its ceiling in the same run");
  Options options;
  const std::map<std::string, DType> dtypes = {
      {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
  std::string dtype = "bf16";
  line.add("--device", options.device, "cpu: small steps in f32; cuda: whole steps on the first GPU",
           {.choices = {"cpu", "cuda"}});
  line.add("--dtype", dtype, "dtype of activations on a GPU: f32, bf16 (default) or f16",
           {.choices = {"f32", "bf16", "f16"}});
  line.add("--filter", options.filter, "regular expression that \"kernel shape\" must match");
  line.add("--threads", options.threads, "threads of the CPU kernels and their ceilings; Eigen uses one",
           {.is_positive = true});
  line.add("--seconds", options.seconds, "seconds of each measurement", {.is_positive = true});
  line.add_flag("--quick", options.quick, "one small shape per kernel, to check that it runs");
  line.add_flag("--append", options.append, "add the rows to bench/results");
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  options.dtype = dtypes.at(dtype);
  return run_program([&] { return options.device == "cuda" ? bench_gpu(options) : bench_cpu(options); });
}
