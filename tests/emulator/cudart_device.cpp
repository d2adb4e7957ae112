// SPDX-License-Identifier: Apache-2.0

// The CUDA runtime's functions for devices and errors.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "emulator/arena.h"
#include "emulator/block.h"
#include "emulator/cudart.h"
#include "lockstep/core/error.h"

namespace emulator {
namespace {

constexpr int cuda_version = CUDART_VERSION;

thread_local cudaError_t last_error = cudaSuccess;
thread_local int device_of_thread = 0;
std::atomic<bool> is_lost{false};

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorText error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not initiated in this stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};

/// The driver's cuDeviceGetUuid_v2.
int uuid_of_slice(cudaUUID_t* uuid, int device) {
  std::memset(uuid->bytes, 0xee, sizeof(uuid->bytes));
  uuid->bytes[0] = static_cast<char>(device);
  return 0;
}

}  // namespace

cudaError_t remember(cudaError_t result) {
  if (result != cudaSuccess && result != cudaErrorNotReady) last_error = result;
  return result;
}

Model& model() {
  static Model described = [] {
    Model result;
    const char* text = std::getenv("LOCKSTEP_EMULATED_COMPUTE_CAPABILITY");
    const bool is_valid = text == nullptr || std::sscanf(text, "%d.%d", &result.major, &result.minor) == 2;
    lockstep::expect(is_valid && result.major >= 8,
                     "emulator: LOCKSTEP_EMULATED_COMPUTE_CAPABILITY must be 8.0 or later, as in 9.0");
    return result;
  }();
  return described;
}

int current_device() { return device_of_thread; }

int device_count() {
  const char* text = std::getenv("LOCKSTEP_EMULATED_GPUS");
  return text ? std::clamp(std::atoi(text), 0, 64) : 1;
}

cudaError_t lost_device() { return is_lost.load() ? cudaErrorIllegalAddress : cudaSuccess; }

bool count_kernel() {
  static const char* const limit = std::getenv("LOCKSTEP_EMULATED_GPU_LOST_AFTER");
  static std::atomic<int> kernels{0};
  if (limit != nullptr && ++kernels > std::atoi(limit)) is_lost.store(true);
  return !is_lost.load();
}

}  // namespace emulator

using emulator::remember;

namespace {

bool is_device(int device) { return device >= 0 && device < emulator::device_count(); }

const emulator::ErrorText& text_of(cudaError_t error) {
  const auto* found = std::find_if(std::begin(emulator::error_texts), std::end(emulator::error_texts),
                                   [error](const auto& row) { return row.error == error; });
  static constexpr emulator::ErrorText other{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
  return found == std::end(emulator::error_texts) ? other : *found;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = emulator::device_count();
  return remember(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return remember(cudaErrorInvalidDevice);
  emulator::device_of_thread = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = emulator::current_device();
  return remember(emulator::device_count() == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_device(device)) return remember(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "Lockstep emulator");
  // As if MIG had sliced one GPU: the slices share this number, and only the driver knows their own.
  std::memset(properties->uuid.bytes, 0xee, sizeof(properties->uuid.bytes));
  properties->major = emulator::model().major;
  properties->minor = emulator::model().minor;
  properties->multiProcessorCount = emulator::model().multiprocessors;
  properties->totalGlobalMem = emulator::Arena::limit_bytes();
  properties->sharedMemPerBlock = 48 * 1024;
  properties->sharedMemPerBlockOptin = emulator::most_shared_bytes;
  properties->warpSize = emulator::warp_size;
  properties->maxThreadsPerBlock = emulator::most_threads;
  properties->l2CacheSize = 1 << 20;
  properties->pciBusID = device;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult* result) {
  const bool is_known = std::strcmp(symbol, "cuDeviceGetUuid") == 0;
  *function = is_known ? reinterpret_cast<void*>(&emulator::uuid_of_slice) : nullptr;
  *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

#if CUDART_VERSION < 12050
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(symbol, function, 0, flags, result);
}
#endif

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!is_device(device)) return remember(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = emulator::model().multiprocessors;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = emulator::most_shared_bytes;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = emulator::most_shared_bytes + 1024;
      break;
    default:
      return remember(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  const char* text = std::getenv("LOCKSTEP_EMULATED_DRIVER");
  *version = text ? std::atoi(text) : emulator::device_count() == 0 ? 0 : emulator::cuda_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = emulator::cuda_version;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(emulator::last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return emulator::last_error; }
const char* cudaGetErrorString(cudaError_t error) { return text_of(error).text; }
const char* cudaGetErrorName(cudaError_t error) { return text_of(error).name; }

}  // extern "C"
