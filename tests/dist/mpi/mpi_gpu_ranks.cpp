// SPDX-License-Identifier: Apache-2.0
// One rank of an MPI job that reduces on GPUs: by NCCL where each rank has one, and through the host. Exits 0
// if all bits are those of a rank alone, and says "skipped" where there is no GPU.

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "comm/local_communicator.h"
#include "comm/nccl_communicator.h"
#include "comm/world.h"
#include "core/error.h"
#include "core/gpu.h"
#include "core/log.h"
#include "dist/gradient_reducer.h"
#include "tensor/create.h"

namespace lockstep {
namespace {

/// The mean of two steps over these replicas, by the given ranks.
std::vector<float> reduce(const std::shared_ptr<Communicator>& ranks, const DataParallelOptions& options,
                          const Stream& stream) {
  std::vector<NamedTensor> parameters;
  for (const int64_t size : {700, 1, 33, 9000, 16})
    parameters.push_back({concat("p", parameters.size()), zeros({size}).set_requires_grad()});
  const BucketPlan buckets(ParameterSpace(parameters), ranks->size(), 33000);
  GradientReducer reducer(ranks, buckets, options, stream);
  const std::vector<int> replicas = reducer.plan().replicas();
  for (int step = 0; step < 2; ++step) {
    for (int k = 0; k < static_cast<int>(replicas.size()); ++k) {
      std::vector<float> leaf(static_cast<size_t>(buckets.elements));
      for (size_t i = 0; i < leaf.size(); ++i)
        leaf[i] = static_cast<float>(1 + i % 97) /
                  static_cast<float>(1 + replicas[static_cast<size_t>(k)] * 7 + static_cast<int>(i % 5));
      copy_bytes(reducer.slot(reducer.begin(k)), stream, leaf.data(), cpu_stream(), buckets.elements * 4);
      for (size_t b = 0; b < buckets.buckets.size(); ++b) reducer.complete(static_cast<int>(b), k);
    }
    reducer.finish(true);
  }
  std::vector<float> mean(static_cast<size_t>(buckets.elements));
  copy_bytes(mean.data(), cpu_stream(), reducer.slot(0), stream, buckets.elements * 4);
  reducer.check();
  return mean;
}

int compare_transports() {
  const World world = World::from_environment();
  set_log_rank(world.rank(), !world.is_first());
  if (count_gpus() == 0) {
    if (world.is_first()) std::printf("skipped: %s\n", why_no_gpu().c_str());
    return 0;
  }
  ::setenv("LOCKSTEP_SHARE_GPU", "1", 1);
  const Stream stream = make_gpu_stream(world.gpu());
  const bool has_own_gpu = count_gpus() >= world.local_size() && nccl_version() > 0;
  std::vector<Transport> transports = {Transport::automatic, Transport::staged};
  if (has_own_gpu) transports.push_back(Transport::nccl);
  for (const int replicas : {world.size(), 4, 7}) {
    const std::shared_ptr<Communicator> alone = LocalCommunicator::alone();
    const std::vector<float> expected = reduce(alone, {.replicas = replicas}, cpu_stream());
    for (const Transport transport : transports)
      for (const Execution execution : {Execution::ranges, Execution::interleaved})
        expect(reduce(world.shared_communicator(),
                      {.replicas = replicas, .execution = execution, .transport = transport},
                      stream) == expected,
               "the mean of ", replicas, " replicas on ", world.size(), " ranks by ", name(transport), ", ",
               name(execution), ", is not that of one process");
  }
  if (world.is_first())
    std::printf("%d ranks: %zu transports give the bits of one rank\n", world.size(), transports.size());
  return 0;
}

}  // namespace
}  // namespace lockstep

int main() {
  return lockstep::run_program([] { return lockstep::compare_transports(); });
}
