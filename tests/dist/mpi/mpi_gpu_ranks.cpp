// SPDX-License-Identifier: Apache-2.0
// One rank of an MPI job that reduces on GPUs, through the host and by NCCL. It uses NCCL if each rank has a
// GPU. It exits with 0 if the result is bit-identical to a single rank's. It prints "skipped" if there is no
// GPU.

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/comm/nccl_communicator.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/log.h"
#include "lockstep/dist/gradient_reducer.h"
#include "lockstep/tensor/create.h"

namespace lockstep {
namespace {

std::vector<float> gradients_of(int replica, Range range) {
  std::vector<float> gradients;
  for (int64_t i = range.begin; i < range.end; ++i)
    gradients.push_back(static_cast<float>(1 + i % 97) / static_cast<float>(1 + replica * 7 + i % 5));
  return gradients;
}

/// Returns the mean over the replicas after two steps on the given ranks. It has all elements. If gradients
/// are sharded, it has only this rank's owned ranges, one after another.
std::vector<float> reduce(const std::shared_ptr<Communicator>& ranks, const DataParallelOptions& options,
                          const Stream& stream, std::vector<Range>* owned = nullptr) {
  set_current_stream(stream);
  std::vector<NamedTensor> parameters;
  for (const int64_t size : {700, 1, 33, 9000, 16})
    parameters.push_back({concat("p", parameters.size()), zeros({size}).set_requires_grad()});
  const ParameterSpace space(parameters);
  GradientReducer reducer(ranks, space.layout, Sharding(space, options.shard, ranks->size(), 0), options);
  const BucketPlan& buckets = reducer.buckets();
  const std::vector<MicroBatch> mine = reducer.plan().micro_batches();
  for (int step = 0; step < 2; ++step) {
    for (int k = 0; k < static_cast<int>(mine.size()); ++k) {
      const int replica = mine[static_cast<size_t>(k)].replica, slot = reducer.begin(k);
      for (int b = 0; b < static_cast<int>(buckets.buckets.size()); ++b) {
        const BucketPlan::Bucket& bucket = buckets.buckets[static_cast<size_t>(b)];
        float* leaf = nullptr;
        if (reducer.cuts_gradients())
          leaf = reducer.leaf(bucket.unit).data<float>() + bucket.range.begin -
                 buckets.units[static_cast<size_t>(bucket.unit)].begin;
        else
          leaf = reducer.slot(slot) + bucket.range.begin;
        const std::vector<float> gradients = gradients_of(replica, bucket.range);
        copy_bytes(leaf, stream, gradients.data(), cpu_stream(), bucket.range.size() * 4);
        reducer.complete(b, k);
      }
    }
    reducer.finish(!reducer.cuts_gradients());
  }
  std::vector<float> mean;
  const auto append = [&](const float* from, int64_t count) {
    const size_t before = mean.size();
    mean.resize(before + static_cast<size_t>(count));
    copy_bytes(mean.data() + before, cpu_stream(), from, stream, count * 4);
  };
  if (!reducer.cuts_gradients()) {
    append(reducer.slot(0), buckets.elements);
  } else {
    if (ranks->rank() == 0) append(reducer.reserved_mean().data<float>(), BucketPlan::reserved);
    append(reducer.shard().data<float>(), reducer.shard().size());
    *owned = buckets.owned[static_cast<size_t>(ranks->rank())];
  }
  reducer.movement().check();
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
    const std::vector<float> expected =
        reduce(alone, {.replicas = replicas, .bucket_bytes = 33000}, cpu_stream());
    for (const Transport transport : transports)
      for (const Shard stage : {Shard::none, Shard::gradients}) {
        std::vector<Range> owned = {{0, std::ssize(expected)}};
        const std::vector<float> mean =
            reduce(world.shared_communicator(),
                   {.replicas = replicas, .shard = stage, .bucket_bytes = 33000, .transport = transport},
                   stream, &owned);
        auto next = mean.begin();
        bool is_equal = std::ssize(mean) == size_of(owned);
        for (const Range& range : owned)
          for (int64_t i = range.begin; is_equal && i < range.end; ++i)
            is_equal = *next++ == expected[static_cast<size_t>(i)];
        expect(is_equal, "the mean of ", replicas, " replicas on ", world.size(), " ranks by ",
               name(transport), ", shard ", name(stage), ", is not that of one process");
      }
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
