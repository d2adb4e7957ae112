// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <mpi.h>

#include "allreduce.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/dist/gradient_reducer.h"
#include "lockstep/program/command_line.h"
#include "report.h"

using namespace lockstep;

namespace {

AllReduceMethod method_on(float* values, int64_t count) {
  return {.write = [=](const std::vector<float>& from) { std::copy(from.begin(), from.end(), values); },
          .read = [=] { return std::vector<float>(values, values + count); },
          .reduce = {}};
}

std::vector<std::string> row_of(int64_t bytes, const AllReduceOptions& options, const World& world) {
  Communicator& communicator = world.communicator();
  const int ranks = world.size();
  const int64_t count = bytes / 4;
  GradientReducer tree(world.shared_communicator(), one_bucket(count, ranks),
                       {.replicas = ranks, .shared_memory = !options.messages}, cpu_stream());
  std::vector<float> for_mpi(static_cast<size_t>(count)), for_native(static_cast<size_t>(count));
  std::vector<AllReduceMethod> methods = {method_on(tree.slot(0), count), method_on(for_mpi.data(), count),
                                          method_on(for_native.data(), count)};
  methods[0].scale = 1.0f / static_cast<float>(ranks);
  methods[0].reduce = [&] {
    tree.begin(0);
    tree.complete(0, 0);
    tree.finish(true);
  };
  methods[1].reduce = [&] {
    const int status = MPI_Allreduce(MPI_IN_PLACE, for_mpi.data(), static_cast<int>(count), MPI_FLOAT,
                                     MPI_SUM, MPI_COMM_WORLD);
    expect(status == MPI_SUCCESS, "MPI_Allreduce of ", bytes, " bytes failed");
  };
  methods[2].reduce = [&] { communicator.native_all_reduce(for_native.data(), count); };

  int64_t wrong = 0;
  for (const AllReduceMethod& method : methods) wrong += wrong_values(method, count, communicator);
  const std::vector<Timing> timings = times_of(methods, count, options.samples, communicator);
  const auto bandwidth = [&](const Timing& timing) { return static_cast<double>(bytes) / timing.seconds; };
  const double bus_factor = 2.0 * (ranks - 1) / ranks;
  return {options.messages ? "messages" : "shared",
          concat(bytes),
          fixed_text(timings[0].seconds * 1e6, 1),
          fixed_text(timings[0].spread_percent, 0),
          fixed_text(bandwidth(timings[0]) * 1e-9, 3),
          fixed_text(bandwidth(timings[0]) * 1e-9 * bus_factor, 3),
          concat(wrong),
          fixed_text(timings[1].seconds * 1e6, 1),
          fixed_text(timings[1].spread_percent, 0),
          fixed_text(bandwidth(timings[1]) * 1e-9, 3),
          fixed_text(timings[2].seconds * 1e6, 1),
          fixed_text(timings[1].seconds / timings[0].seconds, 2)};
}

int bench(const AllReduceOptions& options, const std::string& device) {
  const World world = World::from_environment();
  require(world.size() > 1, "one rank has nothing to reduce; start bench_allreduce with mpirun -np 2");
  require(options.min_bytes >= 64 && options.min_bytes <= options.max_bytes &&
              options.max_bytes <= int64_t{4} << 30,
          "--min and --max: must satisfy 64 <= min <= max <= 4 GiB");
  if (device == "cuda") {
    bench_all_reduce_on_gpus(options, world);
    return 0;
  }
  Report report("bench_allreduce",
                {{"path", 9},
                 {"bytes"},
                 {"tree_us"},
                 {"spread"},
                 {"algbw_gb_s", 12},
                 {"busbw_gb_s", 12},
                 {"wrong", 7},
                 {"mpi_us"},
                 {"mpi_spread", 12},
                 {"mpi_algbw_gb_s", 16},
                 {"native_us", 12},
                 {"tree_vs_mpi", 13}},
                {.ranks = world.size(), .threads = 1}, world.is_first());
  for (int64_t bytes = options.min_bytes / 64 * 64; bytes <= options.max_bytes; bytes *= 2)
    report.add(row_of(bytes, options, world));
  if (options.append) report.append();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line(
      "Compares the tree all-reduce with MPI_Allreduce; bandwidths as in nccl-tests; run it under mpirun -np "
      "2");
  AllReduceOptions options;
  std::string device = "cpu";
  line.add("--device", device, "cpu, or cuda: compare with ncclAllReduce, one GPU per rank",
           {.choices = {"cpu", "cuda"}});
  line.add("--min", options.min_bytes, "bytes of the smallest message");
  line.add("--max", options.max_bytes, "bytes of the largest message; sizes double");
  line.add("--samples", options.samples, "samples of each method and size", {.is_positive = true});
  line.add_flag("--messages", options.messages,
                "run the tree with messages, as between hosts, instead of in shared memory");
  line.add_flag("--append", options.append, "add the rows to bench/results");
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  return run_program([&] { return bench(options, device); });
}
