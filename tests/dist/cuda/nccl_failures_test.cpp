// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "dist/cuda/gpu_ranks.h"
#include "dist/cuda/gpu_training.h"
#include "lockstep/comm/watchdog.h"
#include "lockstep/core/error.h"
#include "lockstep/core/stream.h"
#include "lockstep/dist/gradient_reducer.h"
#include "lockstep/tensor/create.h"
#include "support/eventually.h"
#include "support/flight_records.h"
#include "support/temporary_directory.h"

namespace lockstep {
namespace {

/// Two blocks in two buckets. Each of two ranks owns one.
ParameterSpace two_blocks() {
  return ParameterSpace({{"weight", zeros({2 * ParameterLayout::block}).set_requires_grad()}});
}

GradientReducer reducer_of(Communicator& communicator, const ParameterSpace& space) {
  const Sharding sharding(space, Shard::none, 2, 0);
  return {communicator.shared_from_this(),
          space.layout,
          sharding,
          {.bucket_bytes = 0, .transport = Transport::nccl}};
}

std::vector<FlightRecord> flights_of(const std::string& directory, int rank) {
  return flight_records_in(flight_path(directory, rank));
}

TEST(NcclFailures, ARankThatNeverComesIsNamedAtTheDeadline) {
  LOCKSTEP_NEEDS_GPU();
  if (nccl_version() == 0 || count_gpus() < 2) GTEST_SKIP() << "NCCL and two GPUs are needed";
  const TemporaryDirectory directory;
  std::atomic<bool> given_up{false};
  std::string failure;
  try {
    run_gpu_ranks(2, [&](Communicator& communicator, const Stream& stream) {
      communicator.record_flights_in(directory.path());
      const ParameterSpace space = two_blocks();
      GradientReducer reducer = reducer_of(communicator, space);
      const auto step = [&] {
        reducer.begin(0);
        for (int bucket = 0; bucket < 2; ++bucket) reducer.complete(bucket, 0);
        reducer.finish(true);
        synchronize(stream);
        reducer.movement().check();
      };
      step();
      communicator.barrier();
      communicator.set_timeout(0.5);
      if (communicator.rank() == 1) {
        while (!given_up.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      try {
        step();
      } catch (...) {
        given_up = true;
        throw;
      }
    });
  } catch (const Error& error) {
    failure = error.what();
  }
  for (const char* part : {"nccl_exchange of ", "waited 0.5 s for the other ranks (timeout_s)",
                           "rank 1 never entered collective"})
    EXPECT_NE(failure.find(part), std::string::npos) << failure;
}

// With shard = full, the first collective of a step is a gather. It comes before all reductions.
TEST(NcclFailures, ARankThatNeverComesToARecordedGatherIsNamedAtTheDeadline) {
  LOCKSTEP_NEEDS_GPU();
  if (nccl_version() == 0 || count_gpus() < 2) GTEST_SKIP() << "NCCL and two GPUs are needed";
  std::atomic<bool> given_up{false};
  std::string failure;
  try {
    run_gpu_ranks(2, [&](Communicator& communicator, const Stream& stream) {
      const Model model;
      ParameterSpace space(model.parameters);
      DataParallel ddp(space, World(communicator.shared_from_this()),
                       {.replicas = 2, .shard = Shard::full, .transport = Transport::nccl});
      Momentum optimizer(space);
      const auto size = static_cast<int64_t>(values_of(0, 0, 0).size());
      const Tensor given = from_values(values_of(0, 0, 0), {size});
      const auto step = [&] {
        ddp.begin_step();
        ddp.backward(model.loss(given));
        ddp.update(optimizer, 1.0);
      };
      optimizer.prepare(0.1);
      step();
      const Graph graph(stream, step);
      communicator.barrier();
      communicator.set_timeout(0.5);
      if (communicator.rank() == 1) {
        eventually([&] { return given_up.load(); }, 30.0);
        return;
      }
      try {
        ddp.replay(graph);
        synchronize(stream);
        ddp.check();
      } catch (...) {
        given_up = true;
        throw;
      }
    });
  } catch (const Error& error) {
    failure = error.what();
  }
  EXPECT_NE(failure.find("recorded_step of "), std::string::npos) << failure;
  EXPECT_NE(failure.find("waited 0.5 s for the other ranks (timeout_s)"), std::string::npos) << failure;
}

TEST(NcclFailures, EveryOperationIsInTheFlightRecord) {
  LOCKSTEP_NEEDS_GPU();
  if (nccl_version() == 0 || count_gpus() < 2) GTEST_SKIP() << "NCCL and two GPUs are needed";
  const TemporaryDirectory directory;
  run_gpu_ranks(2, [&](Communicator& communicator, const Stream&) {
    communicator.record_flights_in(directory.path());
    const ParameterSpace space = two_blocks();
    GradientReducer reducer = reducer_of(communicator, space);
    for (int step = 0; step < 2; ++step) {  // the second step gathers each bucket as soon as it is reduced
      reducer.begin(0);
      for (int bucket = 0; bucket < 2; ++bucket) reducer.complete(bucket, 0);
      reducer.finish(true);
    }
    const auto count = [&](const char* operation, bool has_ended) {
      int found = 0;
      for (const FlightRecord& record : flights_of(directory.path(), communicator.rank()))
        found += std::string(record.operation) == operation && (record.end_nanoseconds != 0) == has_ended;
      return found;
    };
    EXPECT_EQ(count("nccl_init", true), 1);
    // The watchdog notes each end within its period. The limit of 30 s is for a machine under load.
    eventually([&] { return count("nccl_gather", true) >= 3; }, 30.0);
    EXPECT_EQ(count("nccl_exchange", true), 4);
    EXPECT_EQ(count("nccl_gather", true), 3);
  });
}

// NCCL frees a communicator only after the graphs that hold its operations. Their owner may be the thread
// that breaks off.
TEST(NcclFailures, BreakingOffDoesNotWaitForARecordedGraph) {
  LOCKSTEP_NEEDS_GPU();
  if (nccl_version() == 0 || count_gpus() < 2) GTEST_SKIP() << "NCCL and two GPUs are needed";
  run_gpu_ranks(2, [](Communicator& communicator, const Stream& stream) {
    const int other = 1 - communicator.rank();
    const auto nccl = connect_nccl(communicator, communicator.rank());
    const auto sent = nccl->allocate(64, stream), received = nccl->allocate(64, stream);
    const std::vector<SentMessage> sends = {{.peer = other, .data = sent.get(), .bytes = 64}};
    const std::vector<ReceivedMessage> receives = {{.peer = other, .data = received.get(), .bytes = 64}};
    const auto exchange = [&] { nccl->exchange(sends, receives, stream); };
    exchange();
    const Graph graph(stream, exchange);
    communicator.barrier();
    nccl->break_off();
    EXPECT_THROW(exchange(), Error);
    EXPECT_EQ(nccl->background_error(), "") << "after the end there is nothing to ask NCCL";
  });
}

TEST(Watchdog, AnErrorInTheBackgroundEndsTheTransportAndIsReported) {
  LOCKSTEP_NEEDS_GPU();
  run_gpu_ranks(1, [](Communicator& communicator, const Stream& stream) {
    std::atomic<bool> is_broken{false}, is_aborted{false};
    Watchdog watchdog(
        communicator,
        {.background_error = [&] { return is_broken.load() ? std::string("a cable was pulled") : ""; },
         .break_off = [&] { is_aborted = true; }});
    watchdog.watch("nccl_exchange", 8, stream, [] {});
    EXPECT_NO_THROW(watchdog.check());
    is_broken = true;
    while (!is_aborted.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(communicator.cancelled().load()) << "waits of the host end too";
    try {
      watchdog.watch("nccl_gather", 8, stream, [] { FAIL() << "no work may be queued after the end"; });
      FAIL() << "nothing was thrown";
    } catch (const Error& failure) {
      EXPECT_NE(std::string(failure.what()).find("a cable was pulled"), std::string::npos) << failure.what();
    }
  });
}

TEST(Watchdog, TimeCountsFromWhenTheCollectiveHasBegun) {
  LOCKSTEP_NEEDS_GPU();
  run_gpu_ranks(1, [](Communicator& communicator, const Stream& stream) {
    communicator.set_timeout(0.3);
    std::atomic<bool> has_begun{false}, is_aborted{false};
    Watchdog watchdog(communicator, {.background_error = [] { return std::string(); },
                                     .break_off = [&] { is_aborted = true; }});
    watchdog.watch(
        "recorded_step", 8, stream,
        [&] {
          // The collective has not begun yet. Until then, computing may take any time.
          std::this_thread::sleep_for(std::chrono::milliseconds(900));
          EXPECT_FALSE(is_aborted.load());
          has_begun = true;
          while (!is_aborted.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        },
        [&] { return has_begun.load(); });
    EXPECT_THROW(watchdog.check(), Error);
  });
}

}  // namespace
}  // namespace lockstep
