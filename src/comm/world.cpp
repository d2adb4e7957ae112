// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/world.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <map>
#include <mutex>
#include <sstream>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/comm/local_communicator.h"
#include "lockstep/comm/memory_limit.h"
#include "lockstep/comm/mpi_communicator.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/log.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/program/program.h"
#include "lockstep/program/signals.h"

namespace lockstep {
namespace {

enum class Launcher { none, mpi, srun_without_mpi, torchrun };

struct Launched {
  Launcher by = Launcher::none;
  int processes = 0;  ///< 0 if the launcher does not set it
  int rank = 0;
};

/// Returns what the launcher's variables contain. Does not call MPI.
Launched launched() {
  const auto launched_by = [](Launcher by, const char* processes, const char* rank) {
    return Launched{by, number_from_environment(processes), number_from_environment(rank)};
  };
  const auto is_set = [](const char* name) { return environment_if_set(name).has_value(); };
  if (number_from_environment("OMPI_COMM_WORLD_SIZE") > 0)
    return launched_by(Launcher::mpi, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
  const bool is_unheard_of_by_mpi = is_set("SLURM_PROCID") && is_set("PMI_FD") && !mpi_understands_pmi2();
  if (number_from_environment("PMI_SIZE") > 0 && !is_unheard_of_by_mpi)
    return launched_by(Launcher::mpi, "PMI_SIZE", "PMI_RANK");
  // srun --mpi=pmix sets PMIX_RANK and leaves the OMPI variables to MPI_Init.
  if (is_set("PMIX_RANK")) return launched_by(Launcher::mpi, "SLURM_STEP_NUM_TASKS", "PMIX_RANK");
  if (is_set("SLURM_PROCID") && number_from_environment("SLURM_STEP_NUM_TASKS") > 1)
    return launched_by(Launcher::srun_without_mpi, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID");
  if (is_set("RANK")) return launched_by(Launcher::torchrun, "WORLD_SIZE", "RANK");
  return {};
}

/// A mistake in how all processes were started. The first process reports it for all.
struct LaunchMistake : UserError {
  using UserError::UserError;
};

/// Throws LaunchMistake if a launcher started several processes without MPI. They would be separate runs of
/// one rank that overwrite each other's files.
void refuse_several_without_mpi(const Launched& launch) {
  if (launch.by == Launcher::mpi || launch.processes <= 1) return;
  if (launch.by == Launcher::srun_without_mpi)
    throw LaunchMistake(concat(
        "srun started ", launch.processes,
        " tasks without PMIx, so they cannot find each other: run 'export SLURM_MPI_TYPE=pmix' and start "
        "again, or use srun --mpi=pmix, lockrun or mpirun inside the allocation"));
  throw LaunchMistake(
      concat("RANK and WORLD_SIZE announce ", launch.processes,
             " processes, but they were started without MPI: use lockrun, mpirun or srun --mpi=pmix"));
}

bool mpi_was_used = false;

/// Returns where a failure was thrown, relative to the root of the source tree.
std::string place_in_sources(const Error& failure) {
  const std::string here = __FILE__;
  const std::string root = here.substr(0, here.rfind("src/comm/"));
  const std::string place = failure.where();
  return place.starts_with(root) ? place.substr(root.size()) : place;
}

/// Returns how long a rank waits before it reports its failure. Bad input usually fails on every rank. The
/// first rank gets time to report it, also to other hosts, and a supervisor gets time to end the others.
std::chrono::milliseconds patience_before_speaking(const Launched& launch) {
  if (launch.rank == 0) return std::chrono::milliseconds(0);
  if (is_supervised()) return std::chrono::milliseconds(1000);
  const bool is_on_first_host =
      number_from_environment("OMPI_COMM_WORLD_LOCAL_RANK", launch.rank) == launch.rank;
  return std::chrono::milliseconds(is_on_first_host ? 300 : 1500);
}

/// Returns how long a rank waits after its report before it ends. A launcher prints messages of its own about
/// an end. The report needs time to arrive before them, and the other ranks need time to see it. A supervisor
/// prints nothing before the ranks have ended.
std::chrono::milliseconds patience_before_ending(bool has_spoken) {
  if (is_supervised()) return std::chrono::milliseconds(100);
  return std::chrono::milliseconds(has_spoken ? 700 : 1500);
}

/// Returns a name that all ranks of one launch share.
std::string launch_name() {
  if (const auto name = environment_if_set("PMIX_NAMESPACE")) return *name;
  const auto job = environment_if_set("SLURM_JOB_ID");
  const auto step = environment_if_set("SLURM_STEP_ID");
  return job && step ? concat(*job, ".", *step) : concat(::getppid());
}

/// Returns the failure that is being handled.
Failure current_failure() {
  try {
    throw;
  } catch (const UserError& failure) {
    return {failure.what(), exit_usage};
  } catch (const StoppedBeforeStart& request) {
    return {request.what(), exit_stopped};
  } catch (const OutputLost& failure) {
    return {failure.what(), 1};
  } catch (const Error& failure) {
    return {concat(failure.what(), " (", place_in_sources(failure), ")"), 1};
  } catch (const std::exception& failure) {
    return {failure.what(), 1};
  }
}

/// Logs the peaks of memory and how this process ends, in its log file alone.
void log_last_words(const Failure& end) {
  const int64_t step = heartbeat().step;
  log_to_file(peak_memory_text());
  log_to_file(concat(end.code == 0              ? "done"
                     : end.code == exit_stopped ? "stopped on request"
                                                : "failed",
                     step > 0 ? concat(" after step ", step) : "", end.message.empty() ? "" : ": ",
                     end.message));
}

/// The first failure of this program. The other failures of its ranks are consequences.
class FirstFailure {
 public:
  /// Reports the failure unless another rank of this host reports the same. Returns false if this process has
  /// reported one before.
  bool report(const Failure& failure) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_reported_, true)) return false;
    code_ = failure.code;
    report_failure(failure.message);
    const Launched launch = launched();
    has_others_ = launch.by == Launcher::mpi && launch.processes != 1;
    log_last_words(failure);
    // A launcher may end the job meanwhile. This rank then ends at once.
    if (has_others_ && !is_supervised()) std::signal(SIGTERM, SIG_DFL);
    if (code_ == exit_usage) std::this_thread::sleep_for(patience_before_speaking(launch));
    speaks_ = !has_others_ || detail::claim_message(failure.message);
    if (!speaks_) silence_log_console();
    if (!failure.message.empty()) log_error(failure.message);
    return true;
  }
  /// Ends all ranks. Returns the exit code.
  int end() const {
    if (has_others_) std::this_thread::sleep_for(patience_before_ending(speaks_));
    if (mpi_was_used) abort_mpi(code_);
    return code_;
  }
  int code() const { return code_; }

 private:
  std::mutex mutex_;
  bool is_reported_ = false, has_others_ = false, speaks_ = true;
  int code_ = 0;
};

FirstFailure first_failure;
std::atomic<bool> is_program = false;

constexpr std::chrono::seconds patience_after_failure{5};

/// Ends this process, because its GPU is lost. Nothing that uses the GPU is destroyed.
void end_without_gpu(const Error& failure) {
  first_failure.report({concat(failure.what(), " (", place_in_sources(failure), ")"), 1});
  ::_exit(first_failure.end());
}

int run_on_threads(int ranks, const std::function<int(const World&)>& body) {
  std::vector<int> codes(static_cast<size_t>(ranks), 0);
  run_ranks(ranks, [&](Communicator& communicator) {
    codes[static_cast<size_t>(communicator.rank())] = body(World(communicator.shared_from_this()));
  });
  const auto failed = std::find_if(codes.begin(), codes.end(), [](int code) { return code != 0; });
  return failed == codes.end() ? 0 : *failed;
}

/// Runs `body` and returns its exit code. Reports a failure and returns the failure's exit code.
int run_and_report(const std::function<int()>& body) {
  int code = 0;
  begin_program();
  spare_address_space();
  is_program = true;
  lost_gpu = end_without_gpu;
  try {
    code = body();
  } catch (const LaunchMistake& failure) {
    if (launched().rank != 0) {
      // Some launchers end all processes after the first that fails.
      std::this_thread::sleep_for(std::chrono::seconds(1));
      return exit_usage;
    }
    first_failure.report({failure.what(), exit_usage});
    return first_failure.end();
  } catch (...) {
    first_failure.report(current_failure());
    return first_failure.end();
  }
  log_last_words({.message = "", .code = code});
  finalize_mpi();
  return end_program(code);
}

}  // namespace

bool detail::claim_message(const std::string& message) {
  const size_t number = std::hash<std::string>()(launch_name() + "\n" + message);
  const std::string name = concat("lockstep message ", ::geteuid(), " ", number);
  // An address in Linux's abstract namespace belongs to one process. The kernel frees it when that process
  // ends.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  // Left open on purpose: the claim lasts as long as this process.
  return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) == 0 || errno != EADDRINUSE;
}

World World::from_environment() {
  const Launched launch = launched();
  if (launch.by != Launcher::mpi) {
    refuse_several_without_mpi(launch);
    return alone();
  }
  const MpiRank place = initialize_mpi();
  mpi_was_used = true;
  require(launch.processes == 0 || place.size == launch.processes, "the launcher started ", launch.processes,
          " ranks, but MPI sees ", place.size,
          ": the program and the launcher belong to different MPI installations");
  World world{make_mpi_communicator(place)};
  world.local_rank_ = place.local_rank;
  world.local_size_ = place.local_size;
  world.ranks_on_my_cores_ = detail::count_ranks_on_my_cores(world.communicator());
  return world;
}

int detail::count_ranks_on_my_cores(Communicator& communicator) {
  const std::string cores = boot_id() + allowed_cores();
  const std::vector<std::string> all = communicator.all_gather_text(cores);
  return static_cast<int>(std::count(all.begin(), all.end(), cores));
}

bool detail::is_launched_first() { return launched().rank == 0; }

World World::alone() { return World(std::shared_ptr<Communicator>(LocalCommunicator::alone())); }

World::World(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {
  local_rank_ = communicator_->rank();
  local_size_ = communicator_->size();
  ranks_on_my_cores_ = local_size_;
}

bool World::is_first_in_process() const {
  return is_first() || dynamic_cast<LocalCommunicator*>(communicator_.get()) == nullptr;
}

int World::share_of_cores() const { return std::max(1, available_cores() / ranks_on_my_cores_); }

bool World::has_spare_core(int threads) const { return available_cores() > threads * ranks_on_my_cores_; }

std::vector<int> detail::distribute_gpus(const std::vector<std::string>& seen_by_rank, bool may_share) {
  std::map<std::string, int> ranks_that_see;
  std::vector<int> gpus;
  for (const std::string& seen : seen_by_rank) {
    const auto count = static_cast<int>(std::count(seen.begin(), seen.end(), '\n'));
    const int before = ranks_that_see[seen]++;
    gpus.push_back(count == 0 ? -1 : before % count);
  }
  for (const auto& [seen, ranks] : ranks_that_see) {
    const auto count = std::count(seen.begin(), seen.end(), '\n');
    require(may_share || count == 0 || ranks <= count, ranks, " ranks of a host see ", count,
            count == 1 ? " GPU" : " GPUs",
            ": start at most one rank per GPU, or set LOCKSTEP_SHARE_GPU=1 to let ranks share GPUs "
            "(for experiments only: gradients then pass through host memory)");
  }
  return gpus;
}

int World::gpu() const {
  std::string seen;
  for (int device = 0; device < count_gpus(); ++device) seen += gpu_properties(device).uuid + "\n";
  const bool may_share = communicator_->on_every_rank(number_from_environment("LOCKSTEP_SHARE_GPU") == 1);
  const std::vector<std::string> texts = communicator_->all_gather_text(seen);
  const std::string device = option_name("device"), reason = concat(": ", why_no_gpu());
  for (size_t r = 0; r < texts.size(); ++r)
    require(!texts[r].empty(), device, " = cuda: rank ", r, " sees no GPU",
            r == static_cast<size_t>(rank()) ? reason : "", "; or use ", device, " = cpu");
  return detail::distribute_gpus(texts, may_share)[static_cast<size_t>(rank())];
}

void require_equal_on_all_ranks(Communicator& communicator, const std::string& what,
                                const std::string& lines) {
  std::string difference;
  std::istringstream theirs(communicator.broadcast_text(lines, 0)), mine(lines);
  std::string their_line, my_line;
  while (difference.empty() && (theirs || mine)) {
    if (!std::getline(theirs, their_line)) their_line = "nothing";
    if (!std::getline(mine, my_line)) my_line = "nothing";
    if (their_line != my_line)
      difference =
          concat("rank 0 has '", their_line, "', rank ", communicator.rank(), " has '", my_line, "'");
  }
  for (const std::string& text : communicator.all_gather_text(difference))
    require(text.empty(), "the ranks differ in ", what, ": ", text);
}

void on_first_rank(const World& world, const std::function<void()>& body) {
  Communicator& communicator = world.communicator();
  const NoTimeout no_timeout(communicator);
  std::string problem;
  bool is_stopped = false;
  if (world.is_first()) {
    try {
      body();
    } catch (const UserError& error) {
      problem = error.what();
    } catch (const StoppedBeforeStart& request) {
      problem = request.what();
      is_stopped = true;
    }
  }
  problem = communicator.broadcast_text(problem, 0);
  if (problem.empty()) return;
  if (communicator.broadcast_value(is_stopped, 0)) throw StoppedBeforeStart(problem);
  throw UserError(problem);
}

void report_and_end_soon(const Failure& failure) {
  if (!is_program || !first_failure.report(failure)) return;
  std::thread([] {
    std::this_thread::sleep_for(patience_after_failure);
    abort_mpi(first_failure.code());
  }).detach();
}

int report_first(const std::function<int()>& body) {
  try {
    return body();
  } catch (...) {
    report_and_end_soon(current_failure());
    throw;
  }
}

int run_program(const std::function<int()>& body) {
  return run_and_report([&] {
    refuse_several_without_mpi(launched());
    return body();
  });
}

int run_alone(const std::function<int()>& body) {
  return run_and_report([&] {
    if (const int processes = launched().processes; processes > 1)
      throw LaunchMistake(
          concat("this program runs in one process, but ", processes,
                 " were started, and each would write the same results: start one, by hand or "
                 "with srun -n 1"));
    return body();
  });
}

int launch_ranks(int ranks, const std::function<int(const World&)>& body) {
  return run_program([&] {
    const World world = World::from_environment();
    // A launcher may have started just one rank, so the size of the world does not show this.
    const bool is_launched = dynamic_cast<LocalCommunicator*>(&world.communicator()) == nullptr;
    if (!is_launched) return run_on_threads(ranks > 0 ? ranks : available_cores(), body);
    require(ranks == 0 || ranks == world.size(), ranks, " ranks were requested, but the launcher started ",
            world.size());
    return body(world);
  });
}

}  // namespace lockstep
