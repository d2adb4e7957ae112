// SPDX-License-Identifier: Apache-2.0
#include "dist/world.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sched.h>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "core/exit_code.h"
#include "core/gpu.h"
#include "core/heartbeat.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "dist/local_communicator.h"
#include "dist/mpi_communicator.h"

namespace lockstep {
namespace {

int integer_from_environment(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::atoi(text);
}

struct Launched {
  bool by_mpi = false;
  int ranks = 0;  ///< 0 if the launcher does not say
  int rank = 0;
};

/// What the launcher says before MPI is asked.
Launched launched() {
  if (const int ranks = integer_from_environment("OMPI_COMM_WORLD_SIZE", 0))
    return {true, ranks, integer_from_environment("OMPI_COMM_WORLD_RANK", 0)};
  if (const int ranks = integer_from_environment("PMI_SIZE", 0))
    return {true, ranks, integer_from_environment("PMI_RANK", 0)};
  // srun --mpi=pmix sets PMIX_RANK and leaves the OMPI variables to MPI_Init.
  if (std::getenv("PMIX_RANK"))
    return {true, integer_from_environment("SLURM_STEP_NUM_TASKS", 0),
            integer_from_environment("PMIX_RANK", 0)};
  return {};
}

/// A launcher that started several processes without MPI would get as many runs of one rank, which write over
/// each other. Throws UserError saying what to do.
void refuse_several_alone() {
  const int tasks = integer_from_environment("SLURM_STEP_NUM_TASKS", 1);
  require(tasks <= 1 || std::getenv("SLURM_PROCID") == nullptr, "srun started ", tasks,
          " tasks, but MPI was not told: use srun --mpi=pmix");
  const int processes = integer_from_environment("WORLD_SIZE", 1);
  require(processes <= 1 || std::getenv("RANK") == nullptr, "RANK and WORLD_SIZE say that this is one of ",
          processes, " processes, but MPI was not told: use lockrun, mpirun or srun --mpi=pmix");
}

bool mpi_was_used = false;

/// Ranks of this host that may run on the same cores as this one, itself included: all of them, or one where
/// the launcher has bound each to cores of its own.
int count_ranks_on_my_cores(Communicator& communicator) {
  std::string cores;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> cores;  // tells hosts apart, whatever they are called
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof(mask), &mask) == 0)
    for (size_t core = 0; core < CPU_SETSIZE; ++core) cores += CPU_ISSET(core, &mask) ? '1' : '0';
  const std::vector<std::string> all = communicator.all_gather_text(cores);
  return static_cast<int>(std::count(all.begin(), all.end(), cores));
}

}  // namespace

World World::from_environment() {
  const Launched launch = launched();
  if (!launch.by_mpi) {
    refuse_several_alone();
    return alone();
  }
  const MpiPlace place = initialize_mpi();
  mpi_was_used = true;
  require(launch.ranks == 0 || place.size == launch.ranks, "the launcher started ", launch.ranks,
          " ranks, but MPI sees ", place.size,
          ": the program and the launcher belong to different MPI installations");
  World world{std::shared_ptr<Communicator>(make_mpi_communicator())};
  world.local_rank_ = place.local_rank;
  world.local_size_ = place.local_size;
  world.ranks_on_my_cores_ = count_ranks_on_my_cores(world.communicator());
  return world;
}

World World::alone() { return World(std::shared_ptr<Communicator>(LocalCommunicator::alone())); }

World::World(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {
  local_rank_ = communicator_->rank();
  local_size_ = communicator_->size();
  ranks_on_my_cores_ = local_size_;
}

int World::share_of_cores() const { return std::max(1, available_cores() / ranks_on_my_cores_); }

bool World::has_spare_core(int threads) const { return available_cores() > threads * ranks_on_my_cores_; }

std::vector<int> distribute_gpus(const std::vector<std::string>& seen_by_rank, bool may_share) {
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
            ": start at most one rank for each GPU, or set LOCKSTEP_SHARE_GPU=1 to let ranks share them, "
            "which is for trying things out: gradients then travel through the host");
  }
  return gpus;
}

int World::gpu() const {
  std::string seen;
  for (int device = 0; device < count_gpus(); ++device) seen += gpu_properties(device).uuid + "\n";
  const bool may_share = communicator_->on_every_rank(integer_from_environment("LOCKSTEP_SHARE_GPU", 0) == 1);
  const std::vector<std::string> texts = communicator_->all_gather_text(seen);
  for (size_t r = 0; r < texts.size(); ++r)
    require(!texts[r].empty(), "train.device = cuda: rank ", r, " sees no GPU",
            r == static_cast<size_t>(rank()) ? concat(": ", why_no_gpu()) : "",
            "; or use train.device = cpu");
  return distribute_gpus(texts, may_share)[static_cast<size_t>(rank())];
}

void require_equal_on_all_ranks(Communicator& communicator, const std::string& what,
                                const std::string& lines) {
  const std::string reference = communicator.broadcast_text(lines, 0);
  std::string difference;
  std::istringstream theirs(reference), mine(lines);
  std::string their_line, my_line;
  while (difference.empty() && reference != lines) {
    const bool more_theirs = static_cast<bool>(std::getline(theirs, their_line));
    const bool more_mine = static_cast<bool>(std::getline(mine, my_line));
    if (!more_theirs && !more_mine) break;
    if (!more_theirs) their_line = "nothing";
    if (!more_mine) my_line = "nothing";
    if (their_line != my_line)
      difference =
          concat("rank 0 has '", their_line, "', rank ", communicator.rank(), " has '", my_line, "'");
  }
  for (const std::string& text : communicator.all_gather_text(difference))
    require(text.empty(), "the ranks differ in ", what, ": ", text);
}

void on_first_rank(const World& world, const std::function<void()>& body) {
  std::string problem;
  if (world.is_first()) {
    try {
      body();
    } catch (const UserError& error) {
      problem = error.what();
    }
  }
  problem = world.communicator().broadcast_text(problem, 0);
  require(problem.empty(), problem);
}

int run_program(const std::function<int()>& body) {
  const auto report = [](const std::string& message, int code, bool is_everybodys) {
    tell_failure(message);
    // What is wrong with the input is usually wrong on every rank: the first gets the time to say it alone,
    // and who watches the time to end the others.
    const auto alone = std::chrono::milliseconds(is_watched() ? 1000 : 300);
    if (is_everybodys && launched().rank != 0) std::this_thread::sleep_for(alone);
    log_error(message);
    if (!mpi_was_used) return code;
    // The launcher has words of its own about an abort: the message gets the time to pass before them.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    abort_mpi(code);
  };
  int code = 0;
  try {
    code = body();
  } catch (const UserError& failure) {
    return report(failure.what(), exit_usage, true);
  } catch (const Error& failure) {
    return report(concat(failure.what(), " (", failure.where(), ")"), 1, false);
  } catch (const std::exception& failure) {
    return report(failure.what(), 1, false);
  }
  finalize_mpi();
  return code;
}

}  // namespace lockstep
