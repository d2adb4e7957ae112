// SPDX-License-Identifier: Apache-2.0

// The CUDA runtime's functions for memory.

#include <chrono>
#include <cstring>
#include <thread>

#include "emulator/arena.h"
#include "emulator/cudart.h"
#include "emulator/emulator.h"
#include "emulator/recorder.h"
#include "lockstep/core/error.h"

using emulator::Arena;
using emulator::Listed;
using emulator::remember;

namespace {

cudaError_t allocate(void** memory, size_t bytes, Arena::Kind kind) {
  *memory = nullptr;
  if (emulator::device_count() == 0) return remember(cudaErrorNoDevice);
  if (const cudaError_t result = emulator::refuse_unsafe_call(); result != cudaSuccess)
    return remember(result);
  if (bytes == 0) return cudaSuccess;
  *memory = Arena::get().allocate(bytes, kind, emulator::current_device());
  return remember(*memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t release(void* memory, Arena::Kind kind) {
  if (memory == nullptr) return cudaSuccess;
  // Freeing waits for the GPU. One that fell off its bus never answers.
  while (emulator::lost_device() != cudaSuccess) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (const cudaError_t result = emulator::refuse_unsafe_call(); result != cudaSuccess)
    return remember(result);
  return remember(Arena::get().release(memory, kind) ? cudaSuccess : cudaErrorInvalidValue);
}

/// Returns false for unused memory of the arena. Other host memory is not checked.
bool is_usable(const void* memory, size_t bytes) {
  return !Arena::get().contains(memory) || Arena::get().is_valid(memory, bytes);
}

bool is_on_device(const void* memory) {
  Arena::Allocation allocation = {};
  return Arena::get().find(memory, allocation) != nullptr && allocation.kind == Arena::Kind::device;
}

/// Returns the bytes of device memory that a copy reads and writes.
double moved_bytes(const void* to, const void* from, size_t bytes) {
  return static_cast<double>(bytes) * (is_on_device(to) + is_on_device(from));
}

bool agrees(const void* to, const void* from, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !is_on_device(to) && !is_on_device(from);
    case cudaMemcpyHostToDevice:
      return is_on_device(to) && !is_on_device(from);
    case cudaMemcpyDeviceToHost:
      return !is_on_device(to) && is_on_device(from);
    case cudaMemcpyDeviceToDevice:
      return is_on_device(to) && is_on_device(from);
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

cudaError_t check_copy(const void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  return is_usable(to, bytes) && is_usable(from, bytes) && agrees(to, from, kind) ? cudaSuccess
                                                                                  : cudaErrorInvalidValue;
}

void copy(void* to, const void* from, size_t bytes) {
  std::memmove(to, from, bytes);
  if (emulator::is_recording()) emulator::note_host_write(to, bytes);
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** memory, size_t bytes) { return allocate(memory, bytes, Arena::Kind::device); }
cudaError_t cudaFree(void* memory) { return release(memory, Arena::Kind::device); }
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return allocate(memory, bytes, Arena::Kind::pinned);
}
cudaError_t cudaFreeHost(void* memory) { return release(memory, Arena::Kind::pinned); }

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* all_bytes) {
  *all_bytes = Arena::limit_bytes();
  *free_bytes = *all_bytes - std::min(*all_bytes, Arena::get().used_bytes(emulator::current_device()));
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const cudaError_t result = check_copy(to, from, bytes, kind); result != cudaSuccess)
    return remember(result);
  const auto work = [=] {
    lockstep::expect(check_copy(to, from, bytes, kind) == cudaSuccess,
                     "emulator: a graph copies from or to memory that was freed");
    copy(to, from, bytes);
  };
  if (bytes != 0 && emulator::is_listing() && !is_on_device(to)) std::memset(to, 0, bytes);
  return remember(
      emulator::enqueue(stream, work, {.kind = Listed::Kind::copy, .bytes = moved_bytes(to, from, bytes)}));
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  cudaError_t result = emulator::refuse_unsafe_call();
  if (result == cudaSuccess) result = check_copy(to, from, bytes, kind);
  if (result != cudaSuccess || bytes == 0) return remember(result);
  if (!emulator::is_listing())
    copy(to, from, bytes);
  else if (!is_on_device(to))
    std::memset(to, 0, bytes);
  return remember(result);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (bytes != 0 && !Arena::get().is_valid(to, bytes)) return remember(cudaErrorInvalidValue);
  const auto work = [=] {
    lockstep::expect(Arena::get().is_valid(to, bytes), "emulator: a graph fills memory that was freed");
    std::memset(to, value, bytes);
    if (emulator::is_recording()) emulator::note_host_write(to, bytes);
  };
  return remember(
      emulator::enqueue(stream, work, {.kind = Listed::Kind::fill, .bytes = static_cast<double>(bytes)}));
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  *attributes = {};
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = -1;
  attributes->hostPointer = const_cast<void*>(memory);
  Arena::Allocation allocation = {};
  if (Arena::get().find(memory, allocation) == nullptr) return cudaSuccess;
  const bool is_device = allocation.kind == Arena::Kind::device;
  attributes->type = is_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->device = allocation.device;
  attributes->devicePointer = const_cast<void*>(memory);
  if (is_device) attributes->hostPointer = nullptr;
  return cudaSuccess;
}

}  // extern "C"
