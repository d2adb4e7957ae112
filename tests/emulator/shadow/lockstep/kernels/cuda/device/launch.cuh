// SPDX-License-Identifier: Apache-2.0
#pragma once

// The emulator's replacement of src/kernels/cuda/device/launch.cuh.

#include <cstring>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "emulator/emulator.h"
#include "lockstep/core/cuda_check.h"
#include "lockstep/core/stream.h"
#include "lockstep/kernels/cuda/device/grid.cuh"

namespace lockstep::cuda {

/// Returns arguments in the layout of PTX's parameter space: one after another, each at its own alignment.
template <class... Parameters>
std::vector<std::byte> pack_parameters(const std::tuple<Parameters...>& arguments) {
  std::vector<std::byte> bytes;
  const auto append = [&]<class T>(const T& argument) {
    const size_t offset = (bytes.size() + alignof(T) - 1) / alignof(T) * alignof(T);
    bytes.resize(offset + sizeof(T));
    std::memcpy(bytes.data() + offset, &argument, sizeof(T));
  };
  std::apply([&](const auto&... each) { (append(each), ...); }, arguments);
  return bytes;
}

/// Launches a kernel. As on a GPU, the arguments are copied now and the kernel may run later.
template <class... Parameters, class... Arguments>
void launch_grid(const CudaStream& stream, const Grid& grid, void (*kernel)(Parameters...),
                 Arguments&&... arguments) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  };
  const auto call = std::make_shared<const Call>(Call{
      kernel, std::tuple<Parameters...>(static_cast<Parameters>(std::forward<Arguments>(arguments))...)});
  const emulator::Launch launch{
      .blocks = grid.blocks,
      .threads = grid.threads,
      .shared_bytes = grid.shared_bytes,
      .kernel = reinterpret_cast<const void*>(kernel),
      .call =
          [](const void* bytes) {
            const auto* self = static_cast<const Call*>(bytes);
            std::apply(self->kernel, self->arguments);
          },
      .arguments = call.get(),
      .argument_bytes = sizeof(Call),
      .pack = [](const void* bytes) { return pack_parameters(static_cast<const Call*>(bytes)->arguments); }};
  emulator::check(launch);
  check(emulator::enqueue(native(stream), [call, launch] { emulator::run(launch); },
                          {.kind = emulator::Listed::Kind::kernel,
                           .kernel = launch.kernel,
                           .blocks = uint64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z}),
        "launching a kernel");
}

}  // namespace lockstep::cuda
