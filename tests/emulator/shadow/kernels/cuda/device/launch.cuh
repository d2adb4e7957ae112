// SPDX-License-Identifier: Apache-2.0
#pragma once

// The emulator's replacement of src/kernels/cuda/device/launch.cuh.

#include <memory>
#include <tuple>
#include <utility>

#include "core/cuda_check.h"
#include "core/stream.h"
#include "emulator/emulator.h"
#include "kernels/cuda/device/grid.cuh"

namespace lockstep::cuda {

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
  const emulator::Launch launch{.blocks = grid.blocks,
                                .threads = grid.threads,
                                .shared_bytes = grid.shared_bytes,
                                .kernel = reinterpret_cast<const void*>(kernel),
                                .call =
                                    [](const void* bytes) {
                                      const auto* self = static_cast<const Call*>(bytes);
                                      std::apply(self->kernel, self->arguments);
                                    },
                                .arguments = call.get(),
                                .argument_bytes = sizeof(Call)};
  emulator::check(launch);
  check(emulator::enqueue(native(stream), [call, launch] { emulator::run(launch); },
                          {.kind = emulator::Listed::Kind::kernel,
                           .kernel = launch.kernel,
                           .blocks = uint64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z}),
        "launching a kernel");
}

}  // namespace lockstep::cuda
