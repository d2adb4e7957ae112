// SPDX-License-Identifier: Apache-2.0

// The CPU's kernel draws the values on the host, and they are copied to the GPU. A GPU draws the same words,
// but its logarithm, sine and cosine differ from the host's in last bits. A model initialised there would
// differ from the one that the CPU trains. Filling happens once per run, at some 10 ns per element and
// thread.

#include "lockstep/kernels/random_fill.h"

#include "lockstep/core/graph.h"
#include "lockstep/core/memory.h"

namespace lockstep {
namespace {

template <class Fill>
void fill_on_host(const CudaStream& stream, Fill fill) {
  expect(!is_recording_graph(), Fill::name, " draws on the host and cannot be part of a recorded graph");
  const View y = fill.y;
  const std::shared_ptr<std::byte> memory = allocate(y.bytes(), cpu_stream());
  fill.y.data = memory.get();
  run(std::get<CpuStream>(cpu_stream()), fill);
  copy_bytes(y.data, stream, memory.get(), cpu_stream(), y.bytes());
}

}  // namespace

void run(CudaStream stream, const FillNormal& k) { fill_on_host(stream, k); }
void run(CudaStream stream, const FillUniform& k) { fill_on_host(stream, k); }

}  // namespace lockstep
