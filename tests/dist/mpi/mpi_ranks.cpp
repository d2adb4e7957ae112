// SPDX-License-Identifier: Apache-2.0
// One rank of an MPI job. `mpi_ranks checks` tests the collective operations and exits with 0 if they are
// correct. Every other task ends the job in one of the ways that mpi_failures_test.cpp checks.

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <unistd.h>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/dist/gradient_reducer.h"
#include "lockstep/movement/bucket_plan.h"
#include "lockstep/tensor/create.h"
#include "tests/dist/momentum.h"
#include "tests/dist/tiny_model.h"

namespace lockstep {
namespace {

std::byte* bytes_of(std::vector<int>& values) { return reinterpret_cast<std::byte*>(values.data()); }

int64_t size_in_bytes(const std::vector<int>& values) { return static_cast<int64_t>(values.size()) * 4; }

/// Just more elements than one MPI message holds.
constexpr size_t long_count = (size_t{64} << 20) / 4 + 3;

void check_broadcast(Communicator& ranks) {
  for (int root = 0; root < ranks.size(); ++root)
    for (size_t count : {size_t{0}, size_t{1000}, root == 0 ? long_count : size_t{1}}) {
      std::vector<int> values(count, ranks.rank());
      ranks.broadcast(values.data(), size_in_bytes(values), root);
      expect(values == std::vector<int>(count, root), "broadcast of ", count, " numbers from rank ", root);
    }
}

void check_all_gather(Communicator& ranks) {
  const std::vector<int> mine = {ranks.rank(), 7};
  std::vector<int> all(2 * static_cast<size_t>(ranks.size()));
  ranks.all_gather(mine.data(), 8, all.data());
  const auto text_of = [](int rank) { return std::string(static_cast<size_t>(rank * 50), 'x'); };
  const std::vector<std::string> texts = ranks.all_gather_text(text_of(ranks.rank()));
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const auto r = static_cast<size_t>(rank);
    expect(all[2 * r] == rank && all[2 * r + 1] == 7, "all_gather: the block of rank ", rank);
    expect(texts[r] == text_of(rank), "all_gather_text: the text of rank ", rank);
  }
  expect(ranks.broadcast_text(concat(ranks.rank()), ranks.size() - 1) == concat(ranks.size() - 1),
         "broadcast_text");
}

/// Sends messages of several lengths to every rank, including itself. One is empty, and one exceeds an MPI
/// message.
void check_exchange(Communicator& ranks) {
  const auto count_of = [](int message, int from, int to) {
    if (message == 2 && from == 0 && to != 0) return long_count;
    return static_cast<size_t>(message * 100);
  };
  const auto value_of = [](int message, int from, int to) { return 100 * message + 10 * from + to; };
  std::vector<std::vector<int>> out, in;
  std::vector<SentMessage> sends;
  std::vector<ReceivedMessage> receives;
  for (int message = 0; message < 4; ++message)
    for (int peer = 0; peer < ranks.size(); ++peer) {
      const int me = ranks.rank();
      std::vector<int>& sent = out.emplace_back(count_of(message, me, peer), value_of(message, me, peer));
      std::vector<int>& received = in.emplace_back(count_of(message, peer, me), -1);
      sends.push_back({peer, bytes_of(sent), size_in_bytes(sent)});
      receives.push_back({peer, bytes_of(received), size_in_bytes(received)});
    }
  ranks.exchange(sends, receives);
  size_t next = 0;
  for (int message = 0; message < 4; ++message)
    for (int peer = 0; peer < ranks.size(); ++peer)
      for (int value : in[next++])
        expect(value == value_of(message, peer, ranks.rank()), "message ", message, " from rank ", peer);
}

void check_native_all_reduce(Communicator& ranks) {
  std::vector<float> values(long_count);
  const auto value_of = [](int rank, size_t i) {
    return static_cast<float>((rank + 1) * static_cast<int>(i % 1000));
  };
  for (size_t i = 0; i < values.size(); ++i) values[i] = value_of(ranks.rank(), i);
  ranks.native_all_reduce(values.data(), static_cast<int64_t>(values.size()));
  const int sum_of_ranks = ranks.size() * (ranks.size() + 1) / 2;
  for (size_t i = 0; i < values.size(); ++i)
    expect(values[i] == value_of(sum_of_ranks - 1, i), "native_all_reduce: element ", i);
}

void check_shared_memory(Communicator& ranks) {
  const auto memory = ranks.share(5000);
  expect(memory != nullptr, "these ranks share a host, but no memory");
  const auto meeting = ranks.share(64);
  SharedBarrier barrier(meeting, ranks.rank());
  for (int round = 1; round <= 100; ++round) {
    std::memcpy(memory->of_rank[static_cast<size_t>(ranks.rank())] + 4900, &round, sizeof(round));
    barrier.wait(ranks.timeout(), ranks.cancelled());
    for (int peer = 0; peer < ranks.size(); ++peer) {
      int theirs = 0;
      std::memcpy(&theirs, memory->of_rank[static_cast<size_t>(peer)] + 4900, sizeof(theirs));
      expect(theirs == round, "rank ", peer, " wrote ", theirs, " in round ", round);
    }
    barrier.wait(ranks.timeout(), ranks.cancelled());
  }
  expect(ranks.share(int64_t{1} << 60) == nullptr, "2^60 bytes of shared memory");
}

ParameterSpace space_of(std::initializer_list<int64_t> sizes) {
  std::vector<NamedTensor> parameters;
  for (const int64_t size : sizes)
    parameters.push_back({concat("p", parameters.size()), zeros({size}).set_requires_grad()});
  return ParameterSpace(parameters);
}

/// Returns the mean over the replicas after two steps on the given ranks. Every rank keeps the whole mean.
std::vector<float> reduce(const std::shared_ptr<Communicator>& ranks, const DataParallelOptions& options) {
  const ParameterSpace space = space_of({700, 1, 33, 25000, 16});
  GradientReducer reducer(ranks, space.layout, Sharding(space, Shard::none, ranks->size(), 0), options);
  const BucketPlan& buckets = reducer.buckets();
  const std::vector<MicroBatch> mine = reducer.plan().micro_batches();
  for (int step = 0; step < 2; ++step) {
    for (size_t k = 0; k < mine.size(); ++k) {
      float* leaf = reducer.slot(reducer.begin(static_cast<int>(k)));
      for (size_t b = 0; b < buckets.buckets.size(); ++b) {
        const Range range = buckets.buckets[b].range;
        for (int64_t i = range.begin; i < range.end; ++i)
          leaf[i] = static_cast<float>(1 + i % 97) / static_cast<float>(1 + mine[k].replica * 7 + i % 5);
        reducer.complete(static_cast<int>(b), static_cast<int>(k));
      }
    }
    reducer.finish(true);
  }
  return {reducer.slot(0), reducer.slot(0) + buckets.elements};
}

void check_reductions(const std::shared_ptr<Communicator>& ranks) {
  for (const int replicas : {ranks->size(), 7, 8}) {
    const std::vector<float> alone = reduce(LocalCommunicator::alone(), {.replicas = replicas});
    for (const bool overlap : {false, true}) {
      for (const bool shared_memory : {false, true})
        expect(reduce(ranks, {.replicas = replicas,
                              .bucket_bytes = 33000,
                              .overlap = overlap,
                              .shared_memory = shared_memory}) == alone,
               "the mean of ", replicas, " replicas on ", ranks->size(),
               " ranks is not that of one process; overlap ", overlap, ", shared memory ", shared_memory);
      const std::vector<float> native =
          reduce(ranks, {.replicas = replicas, .reduction = Reduction::native, .overlap = overlap});
      std::vector<float> of_rank_0 = native;
      ranks->broadcast(of_rank_0.data(), static_cast<int64_t>(of_rank_0.size()) * 4, 0);
      expect(native == of_rank_0, "native reduction differs between ranks");
    }
  }
}

/// Returns the losses of three steps of training and the model's values after them.
std::vector<float> train(const World& world, DType precision, DataParallelOptions options) {
  const TinyModel model(static_cast<uint64_t>(world.rank()));
  ParameterSpace space(model.parameters());
  space.set_precision(precision);
  options.replicas = 5;
  options.accumulate = 3;
  DataParallel ddp(space, world, options);
  Momentum optimizer(space);
  std::vector<float> results;
  for (int step = 0; step < steps; ++step) {
    ddp.begin_step();
    for (const MicroBatch& one : ddp.setup.micro_batches)
      ddp.backward(model.loss(batch_of(step, one.replica, one.index)));
    ddp.step(optimizer, learning_rate, max_norm);
    results.push_back(static_cast<float>(item(ddp.summary.mean_loss())));
  }
  for (int unit = 0; unit < static_cast<int>(space.layout.units().size()); ++unit)
    for (const float value : values_of(ddp.values.gather(unit))) results.push_back(value);
  return results;
}

void check_sharding(const World& world) {
  for (const DType precision : {DType::f32, DType::bf16}) {
    const std::vector<float> alone = train(World::alone(), precision, {});
    for (const Shard stage : {Shard::none, Shard::optimizer, Shard::gradients, Shard::full})
      for (const bool shared_memory : {false, true})
        for (const int group : {0, 2})
          if (group == 0 || (stage == Shard::full && world.size() % 2 == 0))
            expect(train(world, precision,
                         {.shard = stage,
                          .group = group,
                          .overlap = shared_memory,
                          .shared_memory = shared_memory}) == alone,
                   "a training in ", name(precision), " on ", world.size(),
                   " ranks is not that of one; shard ", name(stage), ", group ", group, ", shared memory ",
                   shared_memory);
  }
}

/// Checks memory that all ranks share, as used for optimizer states.
void check_common_memory(Communicator& ranks) {
  const auto memory = ranks.share(4 * ranks.size(), true);
  expect(memory != nullptr, "these ranks share a host, but no memory");
  const auto numbers = [&](int rank) {
    return reinterpret_cast<int*>(memory->of_rank[static_cast<size_t>(rank)]);
  };
  numbers(ranks.rank())[ranks.rank()] = 1 + ranks.rank();
  ranks.barrier();
  for (int rank = 0; rank < ranks.size(); ++rank)
    expect(numbers(0)[rank] == 1 + rank, "rank ", rank, " is not seen in common memory");
  ranks.barrier();
}

void check_no_name_is_left(Communicator& ranks) {
  const std::string prefix = concat("lockstep-", ranks.broadcast_text(concat(::getpid()), 0), "-");
  ranks.barrier();
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    expect(!entry.path().filename().string().starts_with(prefix), entry.path().string(), " was left behind");
}

void check_all(const World& world) {
  Communicator& ranks = world.communicator();
  ranks.barrier();
  check_broadcast(ranks);
  check_all_gather(ranks);
  check_exchange(ranks);
  check_native_all_reduce(ranks);
  check_shared_memory(ranks);
  check_common_memory(ranks);
  check_reductions(world.shared_communicator());
  check_sharding(world);
  check_no_name_is_left(ranks);
}

/// Makes rank 1 call `leave` in the middle of a step, while the other ranks wait for it.
void leave_a_step(const World& world, const std::function<void()>& leave) {
  const ParameterSpace space = space_of({100, 100, 100});
  const Sharding sharding(space, Shard::none, world.size(), 0);
  for (bool shared_memory : {false, true}) {
    GradientReducer reducer(world.shared_communicator(), space.layout, sharding,
                            {.bucket_bytes = 0, .overlap = true, .shared_memory = shared_memory});
    reducer.begin(0);
    reducer.complete(0, 0);
    if (world.rank() == 1 && shared_memory) leave();
    reducer.complete(1, 0);
    reducer.complete(2, 0);
    reducer.finish(true);
  }
}

void end_by_deadline(const World& world, const std::string& directory) {
  world.communicator().record_flights_in(directory);
  world.communicator().barrier();
  world.communicator().set_timeout(1.0);
  if (world.rank() == 1) ::pause();
  world.communicator().barrier();
}

int run_task(const std::string& task, const std::string& directory) {
  const World world = World::from_environment();
  set_log_rank(world.rank(), !world.is_first());
  world.communicator().set_timeout(600);
  if (world.is_first() && task != "checks") std::ofstream(directory + "/process_id") << ::getpid();
  const std::map<std::string, std::function<void()>> tasks = {
      {"checks", [&] { check_all(world); }},
      {"throw", [&] { leave_a_step(world, [] { throw Error("the loss of replica 1 exploded"); }); }},
      {"kill", [&] { leave_a_step(world, [] { ::raise(SIGKILL); }); }},
      {"deadline", [&] { end_by_deadline(world, directory); }},
      {"configurations", [&] {
         require_equal_on_all_ranks(
             world.communicator(), "the configuration",
             concat("train.steps = 5\ntrain.seed = ", world.rank() == 2 ? 8 : 7, "\n"));
       }}};
  const auto found = tasks.find(task);
  require(found != tasks.end(), "no such task: ", task);
  found->second();
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int count, char** arguments) {
  return lockstep::run_program([&] {
    return lockstep::run_task(count > 1 ? arguments[1] : "checks", count > 2 ? arguments[2] : ".");
  });
}
