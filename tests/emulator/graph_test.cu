// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdlib>
#include <set>
#include <thread>

#include "emulator/toy.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/graph.h"
#include "lockstep/core/stream.h"

namespace emulator {
namespace {

__global__ void add_scaled(const float* from, float* to, float scale) { *to += *from * scale; }

/// Frees memory on a thread in the background after the destructors of all static objects with the default
/// priority.
struct LastCall {
  void* memory = nullptr;
  ~LastCall() {
    if (memory == nullptr) return;
    std::thread([this] { std::_Exit(cudaFree(memory) == cudaSuccess ? 3 : 4); }).join();
  }
};
__attribute__((init_priority(101))) LastCall last_call;

/// A stream, with the calls that begin and end a capture on it.
class Graphs : public testing::Test {
 protected:
  Graphs() { cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); }
  ~Graphs() override { cudaStreamDestroy(stream); }

  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
  }
  cudaGraphExec_t finish() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    cudaGraphDestroy(graph);
    return executable;
  }
  void add(cudaStream_t on, const Array<float>& from, const Array<float>& to, float scale) {
    lockstep::cuda::launch_grid({.handle = on}, {.blocks = 1, .threads = 1}, add_scaled, from.get(), to.get(),
                                scale);
  }

  cudaStream_t stream = nullptr;
};

TEST_F(Graphs, FreezeArgumentsAndReadMemoryAtReplay) {
  const Array<float> from(1, 1.0f), to(1, 0.0f);
  float scale = 2.0f;
  begin();
  add(stream, from, to, scale);
  scale = 100.0f;
  EXPECT_EQ(to.values()[0], 0.0f) << "nothing runs while it is captured";
  cudaGraphExec_t graph = finish();
  EXPECT_EQ(to.values()[0], 0.0f);
  for (int launches = 0; launches < 2; ++launches) EXPECT_EQ(cudaGraphLaunch(graph, stream), cudaSuccess);
  EXPECT_EQ(to.values()[0], 4.0f);
  from.fill(10.0f);
  EXPECT_EQ(cudaGraphLaunch(graph, stream), cudaSuccess);
  EXPECT_EQ(to.values()[0], 24.0f);
  cudaGraphExecDestroy(graph);
}

TEST_F(Graphs, AreListedInsteadOfExecuted) {
  const Array<float> from(1, 1.0f), to(1, 5.0f);
  begin();
  listing_tag() = 7;
  add(stream, from, to, 1.0f);
  cudaMemcpyAsync(to.get(), from.get(), 4, cudaMemcpyDeviceToDevice, stream);
  cudaGraphExec_t graph = finish();
  {
    const Listing listing;
    cudaGraphLaunch(graph, stream);
    cudaMemsetAsync(to.get(), 0, 4, stream);
    const std::vector<Listed> list = Listing::take();
    ASSERT_EQ(list.size(), 3U);
    EXPECT_EQ(function_name(list[0].kernel), "emulator::add_scaled");
    EXPECT_EQ(list[0].tag, 7U);
    EXPECT_EQ(list[0].blocks, 1U);
    EXPECT_TRUE(list[1].kind == Listed::Kind::copy && list[1].is_in_graph);
    EXPECT_EQ(list[1].bytes, 8.0) << "a copy on the device reads and writes";
    EXPECT_TRUE(list[2].kind == Listed::Kind::fill && !list[2].is_in_graph);
    float on_host = 1.0f;
    cudaMemcpy(&on_host, to.get(), 4, cudaMemcpyDeviceToHost);
    EXPECT_EQ(on_host, 0.0f);
  }
  EXPECT_EQ(to.values()[0], 5.0f) << "listed work is not executed";
  cudaGraphLaunch(graph, stream);
  EXPECT_EQ(to.values()[0], 1.0f) << "later work is";
  cudaGraphExecDestroy(graph);
}

TEST_F(Graphs, HoldCopiesAndFills) {
  const Array<float> a(4, 1.0f), b(4, 2.0f);
  begin();
  cudaMemcpyAsync(b.get(), a.get(), 16, cudaMemcpyDeviceToDevice, stream);
  cudaMemsetAsync(a.get(), 0, 16, stream);
  EXPECT_EQ(a.values()[0], 1.0f);
  cudaGraphExec_t graph = finish();
  a.fill(3.0f);
  cudaGraphLaunch(graph, stream);
  EXPECT_EQ(b.values(), std::vector<float>(4, 3.0f));
  EXPECT_EQ(a.values(), std::vector<float>(4, 0.0f));
  cudaGraphExecDestroy(graph);
}

/// A second stream that is forked from the first and joined again.
class ForkedGraphs : public Graphs {
 protected:
  ForkedGraphs() {
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&forked, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&joined, cudaEventDisableTiming);
  }
  ~ForkedGraphs() override {
    cudaEventDestroy(forked);
    cudaEventDestroy(joined);
    cudaStreamDestroy(other);
  }
  void fork() {
    cudaEventRecord(forked, stream);
    EXPECT_EQ(cudaStreamWaitEvent(other, forked, 0), cudaSuccess);
  }
  void join() {
    cudaEventRecord(joined, other);
    EXPECT_EQ(cudaStreamWaitEvent(stream, joined, 0), cudaSuccess);
  }

  cudaStream_t other = nullptr;
  cudaEvent_t forked = nullptr, joined = nullptr;
};

TEST_F(ForkedGraphs, JoinStreamsByEvents) {
  const Array<float> a(1, 1.0f), b(1, 0.0f), c(1, 0.0f);
  begin();
  add(stream, a, b, 2.0f);
  fork();
  add(other, b, c, 3.0f);
  EXPECT_EQ(c.values()[0], 0.0f) << "the second stream is captured too";
  join();
  add(stream, c, b, 1.0f);
  cudaGraphExec_t graph = finish();
  for (const uint32_t seed : {0u, 1u, 2u, 3u}) {
    set_schedule(seed);
    b.fill(0.0f);
    c.fill(0.0f);
    cudaGraphLaunch(graph, stream);
    EXPECT_EQ(b.values()[0], 8.0f);
  }
  set_schedule(0);
  cudaGraphExecDestroy(graph);
  add(other, b, c, 1.0f);
  EXPECT_EQ(c.values()[0], 14.0f) << "after the capture the second stream works at once again";
}

TEST_F(ForkedGraphs, ShowAMissingJoinInSomeSchedule) {
  const Array<float> a(1, 1.0f), b(1, 0.0f), c(1, 0.0f);
  begin();
  fork();
  add(stream, a, b, 2.0f);
  add(other, b, c, 3.0f);  // reads b without waiting for it
  join();
  cudaGraphExec_t graph = finish();
  std::set<float> results;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    set_schedule(seed);
    b.fill(0.0f);
    c.fill(0.0f);
    cudaGraphLaunch(graph, stream);
    results.insert(c.values()[0]);
  }
  set_schedule(0);
  cudaGraphExecDestroy(graph);
  EXPECT_EQ(results, (std::set<float>{0.0f, 6.0f}));
}

TEST_F(ForkedGraphs, RefuseWorkThatIsNotJoined) {
  const Array<float> a(1, 1.0f), b(1, 0.0f);
  begin();
  fork();
  add(other, a, b, 1.0f);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  cudaGetLastError();
}

TEST_F(ForkedGraphs, RefuseEventsFromOutside) {
  cudaEventRecord(joined, other);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream, joined, 0), cudaErrorStreamCaptureIsolation);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
}

__global__ void take_number(int* next, int* number) { *number = (*next)++; }

/// Two streams record independent work, the urgent stream last. A reduction is recorded like this during a
/// backward pass.
TEST(RecordedWork, KeepsThePrioritiesOfItsStreams) {
  const lockstep::Stream plain = lockstep::make_gpu_stream(0), urgent = lockstep::make_gpu_stream(0, true);
  const Array<int> next(1, 0), numbers(2, -1);
  const auto number = [&](const lockstep::Stream& on, int which) {
    lockstep::cuda::launch_grid(std::get<lockstep::CudaStream>(on), {.blocks = 1, .threads = 1}, take_number,
                                next.get(), numbers.get() + which);
  };
  const lockstep::Graph graph(plain, [&] {
    lockstep::Event forked, joined;
    forked.record(plain);
    forked.hold(urgent);
    number(plain, 0);
    number(urgent, 1);
    joined.record(urgent);
    joined.hold(plain);
  });
  graph.launch();
  EXPECT_EQ(numbers.values(), (std::vector<int>{1, 0}));
}

TEST_F(Graphs, RefuseCallsThatWait) {
  const Array<float> a(1, 1.0f);
  float host = 0;
  void* memory = nullptr;
  const std::vector<std::function<cudaError_t()>> calls{
      [&] { return cudaStreamSynchronize(stream); },
      [&] { return cudaStreamQuery(stream); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaMalloc(&memory, 16); },
      [&] { return cudaMemcpy(&host, a.get(), 4, cudaMemcpyDeviceToHost); },
  };
  for (const auto& call : calls) {
    begin();
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  }
  cudaGetLastError();
}

TEST_F(Graphs, AllowAllocationsWhereTheModeSaysSo) {
  begin();
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  cudaThreadExchangeStreamCaptureMode(&mode);
  cudaGraphExecDestroy(finish());
  cudaFree(memory);
}

// ---- Other behaviour of the runtime ----

TEST(Runtime, GivesPoisonedMemoryUpToALimit) {
  setenv("LOCKSTEP_EMULATED_GPU_BYTES", "1000000", 1);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 1000001), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  size_t free_before = 0, free_after = 0, all = 0;
  cudaMemGetInfo(&free_before, &all);
  ASSERT_EQ(cudaMalloc(&memory, 4096), cudaSuccess);
  cudaMemGetInfo(&free_after, &all);
  EXPECT_EQ(free_before - free_after, 4096u);
  EXPECT_TRUE(std::isnan(static_cast<float*>(memory)[1023]));
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue) << "freed twice";
  cudaGetLastError();
  unsetenv("LOCKSTEP_EMULATED_GPU_BYTES");
}

// A thread that aborts NCCL frees memory while its process ends.
TEST_F(Graphs, AreForgottenBeforeTheLastCallOfAProcess) {
  const auto end = [&] {
    cudaMalloc(&last_call.memory, 4);
    begin(cudaStreamCaptureModeGlobal);
    finish();
    std::exit(0);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(3), "");
}

TEST(Runtime, ShowsAsManyGpusAsAskedFor) {
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 1);
  setenv("LOCKSTEP_EMULATED_GPUS", "0", 1);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  setenv("LOCKSTEP_EMULATED_GPUS", "3", 1);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(2), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(3), cudaErrorInvalidDevice);
  cudaSetDevice(0);
  cudaGetLastError();
  unsetenv("LOCKSTEP_EMULATED_GPUS");
}

TEST(Runtime, CopiesAreChecked) {
  const Array<float> a(4, 1.0f);
  float host[8] = {};
  EXPECT_EQ(cudaMemcpy(host, a.get(), 16, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(host, a.get(), 20, cudaMemcpyDeviceToHost), cudaErrorInvalidValue)
      << "longer than the allocation";
  EXPECT_EQ(cudaMemcpy(host, a.get(), 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue)
      << "the other way round";
  EXPECT_EQ(cudaMemsetAsync(host, 0, 16, nullptr), cudaErrorInvalidValue);
  cudaPointerAttributes attributes = {};
  cudaPointerGetAttributes(&attributes, a.get() + 1);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  cudaPointerGetAttributes(&attributes, host);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  cudaGetLastError();
}

}  // namespace
}  // namespace emulator
