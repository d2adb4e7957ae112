// SPDX-License-Identifier: Apache-2.0
// Memory, events and graphs of a GPU.
#include "lockstep/core/gpu.h"

#include <cstring>

#include "lockstep/core/graph.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/stream.h"
#include "support/cuda.h"

namespace lockstep {
namespace {

constexpr int64_t count = 1000;
constexpr int64_t size_bytes = count * 4;

std::shared_ptr<std::byte> on_gpu(int32_t value) {
  const std::vector<int32_t> values(count, value);
  auto memory = allocate(size_bytes, gpu_stream());
  copy_bytes(memory.get(), gpu_stream(), values.data(), cpu_stream(), size_bytes);
  return memory;
}

std::vector<int32_t> read(const std::shared_ptr<std::byte>& memory) {
  std::vector<int32_t> values(count);
  copy_bytes(values.data(), cpu_stream(), memory.get(), gpu_stream(), size_bytes);
  return values;
}

int64_t bytes_in_use(const std::string& label) {
  for (const MemoryUse& use : memory_table(gpu_stream()))
    if (use.label == label) return use.current_bytes;
  return 0;
}

TEST(Gpu, SaysWhatItIs) {
  LOCKSTEP_NEEDS_GPU();
  const GpuProperties properties = gpu_properties(0);
  EXPECT_FALSE(properties.name.empty());
  EXPECT_GE(properties.major, 8) << "the kernels need compute capability 8.0";
  EXPECT_GT(properties.memory_bytes, int64_t{1} << 20);
  EXPECT_TRUE(describe_gpu(0).starts_with(properties.name)) << describe_gpu(0);
  EXPECT_EQ(why_no_gpu(), "");
}

TEST(Gpu, ThatIsNotThereIsTheUsersError) {
  LOCKSTEP_NEEDS_GPU();
  try {
    make_gpu_stream(count_gpus());
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("at most one rank per GPU on a host"), std::string::npos)
        << error.what();
  }
}

TEST(GpuMemory, IsCountedByScopeAndUsedAgainOnItsStream) {
  LOCKSTEP_NEEDS_GPU();
  const MemoryScope scope("gpu test");
  auto first = allocate(size_bytes, gpu_stream());
  EXPECT_GE(bytes_in_use("gpu test"), size_bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.get()) % 256, 0U);
  const std::byte* address = first.get();
  first.reset();
  EXPECT_EQ(bytes_in_use("gpu test"), 0);
  const Stream other = make_gpu_stream(0);
  const auto elsewhere = allocate(size_bytes, other);
  EXPECT_NE(elsewhere.get(), address) << "another stream's work may still use it";
  EXPECT_EQ(allocate(size_bytes, gpu_stream()).get(), address);
}

TEST(GpuMemory, ThatIsNotThereShowsTheTableAndWhatToLower) {
  LOCKSTEP_NEEDS_GPU();
  const MemoryScope scope("the last straw");
  try {
    allocate(gpu_properties(0).memory_bytes * 4, gpu_stream());
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    for (const char* part : {"out of memory on GPU 0", "the last straw", "smaller batches", "total: "})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " in: " << error.what();
  }
  EXPECT_EQ(read(on_gpu(7)), std::vector<int32_t>(count, 7)) << "the GPU must still work";
}

TEST(GpuMemory, GoesEverywhere) {
  LOCKSTEP_NEEDS_GPU();
  const auto a = on_gpu(3);
  const auto b = allocate(size_bytes, gpu_stream());
  copy_bytes(b.get(), gpu_stream(), a.get(), gpu_stream(), size_bytes);
  EXPECT_EQ(read(b), std::vector<int32_t>(count, 3));
  const auto pinned = allocate_pinned(size_bytes);
  copy_bytes_in_background(pinned.get(), b.get(), size_bytes, gpu_stream());
  Event arrived;
  arrived.record(gpu_stream());
  arrived.synchronize();
  EXPECT_TRUE(arrived.has_passed());
  int32_t last = 0;
  std::memcpy(&last, pinned.get() + size_bytes - 4, 4);
  EXPECT_EQ(last, 3);
}

TEST(Graph, RunsNothingUntilItIsLaunchedAndReadsWhatIsThereThen) {
  LOCKSTEP_NEEDS_GPU();
  const auto source = on_gpu(1), target = on_gpu(0);
  const Graph graph(gpu_stream(), [&] {
    EXPECT_TRUE(is_recording_graph());
    copy_bytes_in_background(target.get(), source.get(), size_bytes, gpu_stream());
  });
  EXPECT_FALSE(is_recording_graph());
  EXPECT_EQ(read(target)[0], 0);
  graph.launch();
  EXPECT_EQ(read(target)[0], 1);
  const std::vector<int32_t> twos(count, 2);
  copy_bytes(source.get(), gpu_stream(), twos.data(), cpu_stream(), size_bytes);
  graph.launch();
  EXPECT_EQ(read(target), twos);
}

TEST(Graph, TakesAlongAStreamThatWaitsForItsEvents) {
  LOCKSTEP_NEEDS_GPU();
  const auto source = on_gpu(5), middle = on_gpu(0), target = on_gpu(0);
  const Stream side = make_gpu_stream(0, true);
  Event begun, ended;
  const Graph graph(gpu_stream(), [&] {
    copy_bytes_in_background(middle.get(), source.get(), size_bytes, gpu_stream());
    begun.record(gpu_stream());
    begun.hold(side);
    copy_bytes_in_background(target.get(), middle.get(), size_bytes, side);
    ended.record(side);
    ended.hold(gpu_stream());
  });
  EXPECT_EQ(read(target)[0], 0);
  graph.launch();
  EXPECT_EQ(read(target)[0], 5);
}

TEST(Graph, KeepsItsMemoryToItself) {
  LOCKSTEP_NEEDS_GPU();
  const std::byte* inside = nullptr;
  auto graph =
      std::make_unique<Graph>(gpu_stream(), [&] { inside = allocate(size_bytes, gpu_stream()).get(); });
  const auto outside = allocate(size_bytes, gpu_stream());
  EXPECT_NE(outside.get(), inside);
  release_cached_memory(gpu_stream());
  graph->launch();
  graph.reset();
  std::vector<std::shared_ptr<std::byte>> blocks;
  bool came_back = false;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(allocate(size_bytes, gpu_stream()));
    came_back = came_back || blocks.back().get() == inside;
  }
  EXPECT_TRUE(came_back) << "the block of a destroyed graph must be reused";
}

// An evaluation needs about as much memory as a recorded step, which needs its own only while it runs.
TEST(Graph, LendsItsMemoryBetweenLaunches) {
  LOCKSTEP_NEEDS_GPU();
  const std::byte* inside = nullptr;
  const Graph graph(gpu_stream(), [&] { inside = allocate(size_bytes, gpu_stream()).get(); });
  release_cached_memory(gpu_stream());
  const auto smaller = [] { return allocate(size_bytes / 3, gpu_stream()); };
  {
    const GraphMemoryScope scope;
    auto lent = smaller();
    EXPECT_EQ(lent.get(), inside) << "a block may be larger than the request";
    EXPECT_TRUE(graph.has_lent_memory());
    const auto other = smaller();
    EXPECT_NE(other.get(), inside) << "it is in use";
    EXPECT_NE(allocate(size_bytes / 3, make_gpu_stream(0)).get(), inside) << "no order between the streams";
    lent.reset();
    EXPECT_FALSE(graph.has_lent_memory());
    EXPECT_EQ(smaller().get(), inside);
  }
  release_cached_memory(gpu_stream());
  EXPECT_NE(smaller().get(), inside) << "outside of the scope";
  graph.launch();
}

TEST(Graph, MemoryThatIsStillLentAtItsEndBelongsToAllAfterwards) {
  LOCKSTEP_NEEDS_GPU();
  const std::byte* inside = nullptr;
  auto graph =
      std::make_unique<Graph>(gpu_stream(), [&] { inside = allocate(size_bytes, gpu_stream()).get(); });
  release_cached_memory(gpu_stream());
  std::shared_ptr<std::byte> lent;
  {
    const GraphMemoryScope scope;
    lent = allocate(size_bytes, gpu_stream());
  }
  ASSERT_EQ(lent.get(), inside);
  graph.reset();
  lent.reset();
  EXPECT_EQ(allocate(size_bytes, gpu_stream()).get(), inside);
}

TEST(Graph, WaitingOnTheHostCannotBeRecorded) {
  LOCKSTEP_NEEDS_GPU();
  EXPECT_THROW(Graph(gpu_stream(), [] { synchronize(gpu_stream()); }), Error);
  EXPECT_FALSE(is_recording_graph());
  EXPECT_EQ(read(on_gpu(9))[0], 9) << "the stream must still work";
  EXPECT_THROW(Graph(cpu_stream(), [] {}), Error);
}

}  // namespace
}  // namespace lockstep
