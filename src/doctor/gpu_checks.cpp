// SPDX-License-Identifier: Apache-2.0
#include "doctor/gpu_checks.h"

#include <cstdlib>
#include <filesystem>

#include "comm/local_communicator.h"
#include "comm/nccl_communicator.h"
#include "core/error.h"
#include "core/gpu.h"

namespace lockstep {
namespace {

constexpr int least_major = 8;  ///< compute capability that the kernels are compiled for
constexpr double nccl_seconds = 30.0;

/// "; CUDA_VISIBLE_DEVICES = 0,1" where the variable is set.
std::string visible_devices() {
  const char* devices = std::getenv("CUDA_VISIBLE_DEVICES");
  return devices ? concat("; CUDA_VISIBLE_DEVICES = '", devices, "'") : "";
}

Finding judge_absence(const Config& config) {
  const bool is_asked_for = config.train.device == "cuda";
  const bool has_driver = std::filesystem::exists("/proc/driver/nvidia/version");
  const Verdict verdict = is_asked_for ? Verdict::problem : has_driver ? Verdict::warning : Verdict::ok;
  const std::string found = concat("none: ", why_no_gpu(), visible_devices());
  if (verdict == Verdict::ok) return {"gpu", verdict, found};
  return {"gpu", verdict, found,
          is_asked_for ? "repair that, or train with train.device=cpu"
                       : "this machine has an NVIDIA driver, but training would use the CPU"};
}

Finding judge_gpu(int device) {
  const std::string name = concat("gpu ", device);
  const GpuProperties gpu = gpu_properties(device);
  const std::string found = concat(gpu.name, ", compute capability ", gpu.major, ".", gpu.minor, ", ",
                                   gpu.memory_bytes >> 30, " GiB", visible_devices());
  if (gpu.major >= least_major) return {name, Verdict::ok, found};
  return {name, Verdict::problem, found,
          concat("the kernels need ", least_major,
                 ".0 or higher: hide it with CUDA_VISIBLE_DEVICES, or train with "
                 "train.device=cpu")};
}

Finding check_nccl(int gpus) {
  const int version = nccl_version();
  if (version == 0)
    return {"nccl", gpus > 1 ? Verdict::warning : Verdict::ok, "not in this build",
            gpus > 1 ? "gradients travel through the host; install libnccl-dev and configure again" : ""};
  const std::string text = concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  if (gpus == 0) return {"nccl", Verdict::ok, concat(text, "; not tried without a GPU")};
  try {
    const std::unique_ptr<Communicator> alone = LocalCommunicator::alone();
    alone->set_timeout(nccl_seconds);
    connect_nccl(*alone, 0);
  } catch (const Error& problem) {
    return {"nccl", Verdict::problem, concat(text, ": ", problem.what()),
            "NCCL_DEBUG=INFO says more; often /dev/shm is too small or the library is another one than it "
            "was built "
            "with"};
  }
  return {"nccl", Verdict::ok, concat(text, " initialises on GPU 0")};
}

}  // namespace

std::vector<Finding> check_gpus(const Config& config) {
  std::vector<Finding> findings;
  const int gpus = count_gpus();
  if (gpus == 0) findings.push_back(judge_absence(config));
  for (int device = 0; device < gpus; ++device) findings.push_back(judge_gpu(device));
  findings.push_back(check_nccl(gpus));
  return findings;
}

}  // namespace lockstep
