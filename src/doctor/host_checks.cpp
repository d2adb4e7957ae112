// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sys/timex.h>
#include <unistd.h>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/comm/nccl_communicator.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/doctor/doctor.h"
#include "lockstep/net/addresses.h"
#include "lockstep/net/socket.h"

namespace lockstep {
namespace {

/// Returns how many cores the control group may use, or 0 if it has no limit.
double quota_of_control_group() {
  std::string quota;
  double period = 0.0;
  std::ifstream("/sys/fs/cgroup/cpu.max") >> quota >> period;
  if (period > 0.0) return quota == "max" ? 0.0 : std::atof(quota.c_str()) / period;
  // Version 1 of control groups.
  double allowed = 0.0;
  std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> allowed;
  std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  return allowed > 0.0 && period > 0.0 ? allowed / period : 0.0;
}

constexpr int least_major = 8;  ///< compute capability that the kernels are compiled for
constexpr double nccl_seconds = 30.0;

/// Returns "; CUDA_VISIBLE_DEVICES = '0,1'" if the variable is set.
std::string visible_devices() {
  const auto devices = environment_if_set("CUDA_VISIBLE_DEVICES");
  return devices ? concat("; CUDA_VISIBLE_DEVICES = '", *devices, "'") : "";
}

Finding judge_absence(const Job& job) {
  const bool is_asked_for = job.compute.device == Device::cuda;
  const bool has_driver = std::filesystem::exists("/proc/driver/nvidia/version");
  const Verdict verdict = is_asked_for ? Verdict::problem : has_driver ? Verdict::warning : Verdict::ok;
  const std::string found = concat("none: ", why_no_gpu(), visible_devices());
  return {"gpu", verdict, found,
          is_asked_for ? "fix this, or train with train.device=cpu"
          : has_driver ? "this machine has an NVIDIA driver, but training would use the CPU"
                       : ""};
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
            gpus > 1 ? "gradients are sent through the host; install libnccl-dev and configure again" : ""};
  const std::string text = concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  if (gpus == 0) return {"nccl", Verdict::ok, concat(text, "; not tested without a GPU")};
  try {
    const std::unique_ptr<Communicator> alone = LocalCommunicator::alone();
    alone->set_timeout(nccl_seconds);
    connect_nccl(*alone, 0);
  } catch (const Error& problem) {
    return {"nccl", Verdict::problem, concat(text, ": ", problem.what()),
            "NCCL_DEBUG=INFO prints details; often /dev/shm is too small, or the library differs from that "
            "of the build"};
  }
  return {"nccl", Verdict::ok, concat(text, " initialises on GPU 0")};
}

/// Listens at an address of this machine, which gets its port, and connects to it. Returns a failure or "".
std::string try_port(Endpoint& address) {
  try {
    const Socket socket = Socket::listen(address);
    address.port = socket.address().port;
    const std::string problem = try_to_connect(address);
    if (!problem.empty()) return concat(address.text(), " listens, but a connection to it fails: ", problem);
  } catch (const Error& problem) {
    return problem.what();
  }
  return "";
}

}  // namespace

Cores Cores::of_this_process() {
  return {.of_host = static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))),
          .usable = available_cores(),
          .quota = quota_of_control_group()};
}

Finding check_binding(const Job& job, const Cores& cores, int ranks_of_host) {
  const std::string name = "binding";
  const int64_t threads = job.compute.threads;
  std::string found = concat(cores.usable, " of ", cores.of_host, " cores for this process");
  if (cores.quota > 0.0) found += concat(", and a quota of ", cores.quota);
  if (threads > 0) found += concat("; train.threads = ", threads);
  if (threads > cores.usable)
    return {name, Verdict::warning, found,
            "threads will wait for each other: lower train.threads, or start ranks with --bind-to none"};
  if (cores.quota > 0.0 && cores.quota < std::max<double>(1.0, static_cast<double>(cores.usable)))
    return {name, Verdict::warning, found,
            concat("the container's quota is below its visible cores: set train.threads so that all ranks "
                   "together have ",
                   std::max(1, static_cast<int>(cores.quota)))};
  if (cores.usable * ranks_of_host < cores.of_host)
    return {name, Verdict::warning, found,
            concat(ranks_of_host, ranks_of_host == 1 ? " rank leaves" : " ranks leave",
                   " cores idle: mpirun binds a rank to one core if there are one or two ranks; start with "
                   "--bind-to none")};
  return {name, Verdict::ok, found};
}

Finding check_clock() {
  timex state{};
  const int result = ::adjtimex(&state);
  if (result < 0)
    return {"clock", Verdict::ok, "the kernel does not report whether it follows a time server"};
  if (result != TIME_ERROR) return {"clock", Verdict::ok, "follows a time server"};
  return {
      "clock", Verdict::warning, "the kernel reports that it follows no time server",
      "run chrony or systemd-timesyncd; a bucket refuses requests if the clock is 15 minutes off, and logs "
      "of several nodes cannot be ordered"};
}

Finding check_user() {
  if (::geteuid() != 0) return {"user", Verdict::ok, "not root"};
  const bool is_allowed =
      environment_if_set("OMPI_ALLOW_RUN_AS_ROOT") && environment_if_set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
  if (is_allowed) return {"user", Verdict::ok, "root, and Open MPI allows it"};
  return {
      "user", Verdict::warning, "root: Open MPI's mpirun refuses to start",
      "use another user, or in a container export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
}

std::vector<Finding> check_gpus(const Job& job) {
  std::vector<Finding> findings;
  const int gpus = count_gpus();
  if (gpus == 0) findings.push_back(judge_absence(job));
  for (int device = 0; device < gpus; ++device) findings.push_back(judge_gpu(device));
  findings.push_back(check_nccl(gpus));
  return findings;
}

std::string try_to_connect(const Endpoint& address) {
  constexpr double connect_seconds = 3.0;
  try {
    Socket::connect(resolve(address).at(0), after(connect_seconds));
    return "";
  } catch (const Error& problem) {
    return problem.what();
  }
}

Finding check_host_name(const std::string& name) {
  const std::string advice =
      shared_addresses().empty()
          ? "this machine has only loopback addresses: it cannot train with other nodes"
          : concat("for several nodes, put it into /etc/hosts or DNS with ", describe_shared_addresses(),
                   ", or use these addresses as node names");
  std::set<std::string> numbers;
  bool is_reachable = false;
  try {
    for (const SocketAddress& address : resolve({.host = name, .port = 0})) {
      numbers.insert(address.endpoint().host);
      is_reachable |= is_shared(address);
    }
  } catch (const Error&) {
    return {"host name", Verdict::warning, concat(name, " cannot be resolved on this machine"), advice};
  }
  const std::string found = concat(name, " is ", joined(numbers));
  if (is_reachable) return {"host name", Verdict::ok, found};
  return {"host name", Verdict::warning, concat(found, ", where no other node can reach it"), advice};
}

Finding check_port(const std::string& address) {
  const std::vector<InterfaceAddress> own = shared_addresses();
  Endpoint used{.host = own.empty() ? "127.0.0.1" : own.front().address};
  if (!address.empty()) used = Endpoint::parse(address, 0);
  if (const std::string problem = try_port(used); !problem.empty())
    return {
        "port", Verdict::problem, problem,
        "choose an address of this machine and a free port (ss -ltnp shows its process), and open it in the "
        "firewall"};
  return {"port", Verdict::ok, concat("listens on ", used.text(), " and reaches itself there")};
}

Finding check_ipv6() {
  Endpoint used{.host = "::1"};
  if (const std::string problem = try_port(used); !problem.empty())
    return {"ipv6", Verdict::ok, concat("does not work (", problem, "): use IPv4 addresses as node names")};
  return {"ipv6", Verdict::ok, "works"};
}

}  // namespace lockstep
