// SPDX-License-Identifier: Apache-2.0
// GPU functions of a build without CUDA.
#include <cstring>

#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/graph.h"
#include "lockstep/core/memory_pool.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr const char* why_none =
    "this build has no CUDA: install the CUDA toolkit and configure with the preset cuda (LOCKSTEP_CUDA=ON)";

}  // namespace

int count_gpus() { return 0; }
std::string why_no_gpu() { return why_none; }
GpuProperties gpu_properties(int) { throw Error(why_none); }
Stream make_gpu_stream(int, bool) { throw UserError(concat(option_name("device"), " = cuda: ", why_none)); }
std::string describe_gpu(int) { throw Error(why_none); }

MemoryPool& gpu_pool(int) { throw Error(why_none); }
ReuseScope place_of(const Stream&) { return {}; }

std::shared_ptr<std::byte> allocate_pinned(int64_t bytes) { return allocate(bytes, cpu_stream()); }
void copy_bytes_in_background(void* to, const void* from, int64_t bytes, const Stream& stream) {
  if (!mode_of(stream).is_dry) std::memcpy(to, from, static_cast<size_t>(bytes));
}

struct Graph::Recording {};
Graph::Graph(const Stream&, const std::function<void()>&) { throw Error(why_none); }
Graph::~Graph() = default;
void Graph::launch() const {}
bool Graph::has_lent_memory() const { return false; }
bool is_recording_graph() { return false; }

void Event::record(const Stream&) {}
void Event::hold(const Stream&) const {}
bool Event::has_passed() const { return true; }
void Event::synchronize() const {}
void synchronize(const Stream&) {}

}  // namespace lockstep
