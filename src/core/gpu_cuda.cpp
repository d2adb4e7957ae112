// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "lockstep/core/cuda_check.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/memory_pool.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr int most_gpus = 64;

/// A scope in which the device is the calling thread's current one.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    cuda::check(cudaGetDevice(&before_), "querying the current GPU");
    if (device != before_) cuda::check(cudaSetDevice(device), "selecting a GPU");
  }
  ~OnDevice() { cudaSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

class GpuPool : public MemoryPool {
 public:
  explicit GpuPool(int device) : device_(device) {}

 protected:
  std::byte* make(int64_t bytes) override {
    const OnDevice on(device_);
    // An allocation enqueues nothing, so it is allowed while a graph is recorded.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cuda::check(cudaThreadExchangeStreamCaptureMode(&mode),
                "allowing an allocation while a graph is recorded");
    void* block = nullptr;
    const cudaError_t result = cudaMalloc(&block, static_cast<size_t>(bytes));
    cudaThreadExchangeStreamCaptureMode(&mode);
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    cuda::check(result, "allocating GPU memory");
    return static_cast<std::byte*>(block);
  }
  void destroy(std::byte* block, int64_t) override {
    const OnDevice on(device_);
    cudaFree(block);
  }
  std::string device() const override {
    size_t free_bytes = 0, all_bytes = 0;
    const OnDevice on(device_);
    cudaMemGetInfo(&free_bytes, &all_bytes);
    return concat("memory on GPU ", device_, " (", free_bytes >> 20, " of ", all_bytes >> 20, " MiB free)");
  }

 private:
  int device_;
};

/// Returns the GPU's own number. If MIG has sliced a GPU, `properties` may have the number of the whole GPU.
cudaUUID_t uuid_of(int device, const cudaDeviceProp& properties) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  cudaGetDriverEntryPointByVersion("cuDeviceGetUuid", &function, 11040, cudaEnableDefault, &found);
#else
  cudaGetDriverEntryPoint("cuDeviceGetUuid", &function, cudaEnableDefault, &found);
#endif
  cudaUUID_t uuid = properties.uuid;
  if (function != nullptr && found == cudaDriverEntryPointSuccess)
    reinterpret_cast<int (*)(cudaUUID_t*, int)>(function)(&uuid, device);
  return uuid;
}

std::string version_text(int version) { return concat(version / 1000, ".", version % 1000 / 10); }

/// Returns whether the process must end to use the GPU again, as the documentation of cudaError says. Numbers
/// stand for errors that older toolkits do not declare.
bool is_lost_after(cudaError_t error) {
  constexpr int contained = 226, tensor_memory_leak = 721, external_device = 911;
  constexpr int errors[] = {
      cudaErrorECCUncorrectable,    cudaErrorNvlinkUncorrectable, contained,
      cudaErrorIllegalAddress,      cudaErrorLaunchTimeout,       cudaErrorAssert,
      cudaErrorHardwareStackError,  cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
      cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,           cudaErrorLaunchFailure,
      tensor_memory_leak,           cudaErrorMpsClientTerminated, external_device};
  return std::ranges::find(errors, static_cast<int>(error)) != std::end(errors);
}

}  // namespace

void cuda::fail(cudaError_t result, const char* what, const char* file, int line) {
  // Clears the error for the next call. An error after which the GPU is lost stays.
  cudaGetLastError();
  const bool is_lost = is_lost_after(result);
  const std::string text =
      concat(what, " failed: ", cudaGetErrorString(result), " (", cudaGetErrorName(result), ")",
             is_lost ? "; this process cannot use the GPU any more ('dmesg | grep Xid' shows "
                       "the driver's report)"
                     : "");
  if (is_lost && lost_gpu != nullptr) lost_gpu(Error(text, file, line));
  throw Error(text, file, line);
}

int count_gpus() {
  int devices = 0;
  return why_no_gpu().empty() && cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

std::string why_no_gpu() {
  int devices = 0, driver = 0, built = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result != cudaSuccess) cudaGetLastError();
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&built);
  // Tables of tensors are parameters of more than 4 KiB. Drivers accept them from CUDA 12.1 (driver 530) on.
  const int needed = std::max(built / 1000 * 1000, 12010);
  if (driver == 0) return "no NVIDIA driver is installed (nvidia-smi would show it)";
  if (driver < needed)
    return concat("the NVIDIA driver supports CUDA ", version_text(driver), ", but this program needs ",
                  version_text(needed), ": update the driver");
  if (result == cudaSuccess && devices > 0) return "";
  if (const auto visible = environment_if_set("CUDA_VISIBLE_DEVICES"))
    return concat("CUDA_VISIBLE_DEVICES = '", *visible, "' leaves no GPU: unset or correct it");
  return concat("this process sees no GPU (", cudaGetErrorString(result), ")");
}

GpuProperties gpu_properties(int device) {
  cudaDeviceProp properties = {};
  cuda::check(cudaGetDeviceProperties(&properties, device), "querying a GPU's properties");
  const cudaUUID_t uuid = uuid_of(device, properties);
  return {.name = properties.name,
          .uuid = "GPU-" + hexadecimal({uuid.bytes, sizeof uuid.bytes}),
          .major = properties.major,
          .minor = properties.minor,
          .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)};
}

Stream make_gpu_stream(int device, bool high_priority) {
  const int devices = count_gpus();
  require(devices > 0, option_name("device"), " = cuda: ", why_no_gpu(), "; or use ", option_name("device"),
          " = cpu");
  require(device >= 0 && device < devices, "GPU ", device, " was requested, but this process sees ", devices,
          devices == 1 ? " GPU" : " GPUs", ": start at most one rank per GPU on a host");
  const GpuProperties properties = gpu_properties(device);
  require(properties.major >= 8, "GPU ", device, " (", properties.name, ") has compute capability ",
          properties.major, ".", properties.minor, "; 8.0 or higher is needed: use ", option_name("device"),
          " = cpu");
  cuda::check(cudaSetDevice(device), "selecting a GPU");
  int lowest = 0, highest = 0;
  cuda::check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "querying stream priorities");
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, high_priority ? highest : lowest),
              "making a stream");
  return CudaStream{.handle = stream, .device = device};
}

std::string describe_gpu(int device) {
  const GpuProperties properties = gpu_properties(device);
  return concat(properties.name, ", compute capability ", properties.major, ".", properties.minor);
}

MemoryPool& gpu_pool(int device) {
  static std::mutex mutex;
  static std::array<MemoryPool*, most_gpus> pools{};
  const std::lock_guard lock(mutex);
  expect(device >= 0 && device < most_gpus, "GPU ", device, " has no pool");
  MemoryPool*& pool = pools[static_cast<size_t>(device)];
  if (pool == nullptr) pool = new GpuPool(device);
  return *pool;
}

std::shared_ptr<std::byte> allocate_pinned(int64_t bytes) {
  if (mode_of(cpu_stream()).is_dry) return allocate(bytes, cpu_stream());
  void* memory = nullptr;
  cuda::check(cudaMallocHost(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1))),
              "allocating pinned memory");
  return {static_cast<std::byte*>(memory), [](std::byte* freed) { cudaFreeHost(freed); }};
}

void copy_bytes_in_background(void* to, const void* from, int64_t bytes, const Stream& stream) {
  if (mode_of(stream).is_dry) return;
  const auto* cuda = std::get_if<CudaStream>(&stream);
  if (cuda == nullptr) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  cuda::check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, cuda::native(*cuda)),
              "copying memory");
}

int cuda::multiprocessors(const CudaStream& stream) {
  int number = 0;
  check(cudaDeviceGetAttribute(&number, cudaDevAttrMultiProcessorCount, stream.device),
        "querying a GPU's multiprocessors");
  return number;
}

}  // namespace lockstep
