// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <mpi.h>

#include "core/error.h"
#include "dist/gradient_reducer.h"
#include "dist/world.h"
#include "measure.h"
#include "report.h"

using namespace lockstep;

namespace {

struct Options {
  int64_t min_bytes = 1024;
  int64_t max_bytes = int64_t{256} << 20;
  int samples = 15;
  bool messages = false;
  bool append = false;
};

/// One way to add up `values`, in place on every rank.
struct Method {
  float* values = nullptr;
  std::function<void()> reduce;
  float scale = 1.0f;  ///< of the sum that it leaves behind
};

constexpr float input(int rank, int64_t element) {
  return static_cast<float>((element * 7 + rank * 13) % 251);
}

/// How many elements differ, on any rank, from the exact sum of small integers times the method's scale.
int64_t wrong_values(const Method& method, int64_t count, Communicator& communicator) {
  for (int64_t i = 0; i < count; ++i) method.values[i] = input(communicator.rank(), i);
  communicator.barrier();
  method.reduce();
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int rank = 0; rank < communicator.size(); ++rank) sum += input(rank, i);
    wrong += method.values[i] != sum * method.scale;
  }
  std::vector<int64_t> of_rank(static_cast<size_t>(communicator.size()));
  communicator.all_gather(&wrong, sizeof(wrong), of_rank.data());
  return *std::max_element(of_rank.begin(), of_rank.end());
}

/// Seconds of one call of each method: samples alternate, each the slowest rank's mean over some calls.
std::vector<Timing> times_of(const std::vector<Method>& methods, int64_t count, const Options& options,
                             Communicator& communicator) {
  // Long enough for the clock and for the ranks' different starts not to count.
  const int64_t calls = std::clamp<int64_t>((int64_t{4} << 20) / (count * 4), 1, 500);
  std::vector<std::vector<double>> samples(methods.size());
  // Sums of zeros stay zeros, however often they are added up again.
  for (const Method& method : methods) std::fill_n(method.values, count, 0.0f);
  for (int sample = -2; sample < options.samples; ++sample)
    for (size_t i = 0; i < methods.size(); ++i) {
      communicator.barrier();
      const auto begin = std::chrono::steady_clock::now();
      for (int64_t call = 0; call < calls; ++call) methods[i].reduce();
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      const double mine = elapsed.count() / static_cast<double>(calls);
      std::vector<double> of_rank(static_cast<size_t>(communicator.size()));
      communicator.all_gather(&mine, sizeof(mine), of_rank.data());
      const bool is_warm = sample >= 0;
      if (is_warm) samples[i].push_back(*std::max_element(of_rank.begin(), of_rank.end()));
    }
  std::vector<Timing> timings;
  for (auto& of_method : samples) timings.push_back(timing_of(std::move(of_method)));
  return timings;
}

std::vector<std::string> row_of(int64_t bytes, const Options& options, const World& world) {
  Communicator& communicator = world.communicator();
  const int ranks = world.size();
  const int64_t count = bytes / 4;
  const std::vector<int64_t> sizes = {count};
  GradientReducer tree(world.shared_communicator(), BucketPlan(sizes, bytes),
                       {.replicas = ranks, .shared_memory = !options.messages});
  std::vector<float> for_mpi(static_cast<size_t>(count)), for_native(static_cast<size_t>(count));
  const std::vector<Method> methods = {
      {.values = reinterpret_cast<float*>(tree.storage()->data.get()),
       .reduce =
           [&] {
             tree.complete(0, 0);
             tree.finish();
           },
       .scale = 1.0f / static_cast<float>(ranks)},
      {.values = for_mpi.data(),
       .reduce =
           [&] {
             const int status = MPI_Allreduce(MPI_IN_PLACE, for_mpi.data(), static_cast<int>(count),
                                              MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
             expect(status == MPI_SUCCESS, "MPI_Allreduce of ", bytes, " bytes failed");
           }},
      {.values = for_native.data(),
       .reduce = [&] { communicator.native_all_reduce(for_native.data(), count); }}};

  int64_t wrong = 0;
  for (const Method& method : methods) wrong += wrong_values(method, count, communicator);
  const std::vector<Timing> timings = times_of(methods, count, options, communicator);
  const auto bandwidth = [&](const Timing& timing) { return static_cast<double>(bytes) / timing.seconds; };
  const double bus_factor = 2.0 * (ranks - 1) / ranks;
  return {options.messages ? "messages" : "shared",
          concat(bytes),
          fixed(timings[0].seconds * 1e6, 1),
          fixed(timings[0].spread_percent, 0),
          fixed(bandwidth(timings[0]) * 1e-9, 3),
          fixed(bandwidth(timings[0]) * 1e-9 * bus_factor, 3),
          concat(wrong),
          fixed(timings[1].seconds * 1e6, 1),
          fixed(timings[1].spread_percent, 0),
          fixed(bandwidth(timings[1]) * 1e-9, 3),
          fixed(timings[2].seconds * 1e6, 1),
          fixed(timings[1].seconds / timings[0].seconds, 2)};
}

int bench(const Options& options) {
  const World world = World::from_environment();
  require(world.size() > 1, "one rank has nothing to reduce; start it with mpirun -np 2");
  require(options.min_bytes >= 4 && options.min_bytes <= options.max_bytes &&
              options.max_bytes <= int64_t{4} << 30,
          "--min and --max: 4 <= min <= max <= 4 GiB is needed");
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
  for (int64_t bytes = options.min_bytes / 4 * 4; bytes <= options.max_bytes; bytes *= 2)
    report.add(row_of(bytes, options, world));
  if (options.append) report.append();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The tree all-reduce beside MPI_Allreduce, with nccl-tests' bandwidths, under mpirun -np 2");
  Options options;
  app.add_option("--min", options.min_bytes, "bytes of the smallest message")->capture_default_str();
  app.add_option("--max", options.max_bytes, "bytes of the largest; sizes double")->capture_default_str();
  app.add_option("--samples", options.samples, "of each method and size")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--messages", options.messages,
               "the tree by messages, as between hosts, not in shared memory");
  app.add_flag("--append", options.append, "add the rows to bench/results/bench_allreduce.csv");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? 0 : 2;
  }
  return run_program([&] { return bench(options); });
}
