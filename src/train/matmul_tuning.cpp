// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/matmul_tuning.h"

#include <cerrno>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <locale>
#include <numeric>
#include <optional>
#include <sys/file.h>
#include <thread>

#include "lockstep/comm/stop_request.h"
#include "lockstep/core/clock.h"
#include "lockstep/core/descriptor.h"
#include "lockstep/core/file.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/log.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/stream.h"
#include "lockstep/data/loader.h"
#include "lockstep/kernels/matmul_plans.h"
#include "lockstep/program/signals.h"
#include "lockstep/tensor/autograd.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// The file of tuned plans for this GPU model and this version of cuBLASLt. Runs with train.tune_matmul write
/// it. A PlansFile object locks it during its lifetime; other runs wait.
class PlansFile {
 public:
  /// Throws UserError after `patience` seconds. Returns without the lock if this process is asked to stop.
  explicit PlansFile(double patience) {
    const std::string folder = cache_folder();
    if (folder.empty()) return;
    std::string name = place_of_matmul_plans();
    for (char& c : name)
      if (!std::isalnum(c, std::locale::classic())) c = '_';
    std::error_code problem;  // not checked: keep() fails and reports it
    fs::create_directories(folder, problem);
    path_ = folder + "/" + name + ".txt";
    // The lock is a file of its own, because every writer replaces the file of plans.
    lock_ = Descriptor(::open((path_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (lock_) wait_for_lock(patience);
  }

  const std::string& path() const { return path_; }

  /// Replaces this process's plans with those of the file. Logs a warning and loads none if they are bad.
  void load() const {
    import_matmul_plans("");
    const std::optional<std::string> plans = read_file(path_);
    if (!plans) return;
    try {
      import_matmul_plans(*plans);
    } catch (const UserError& problem) {
      log_warning(concat(path_, ": ", problem.what(), "; its plans are tuned again"));
    }
  }

  /// Saves plans for other runs. Returns false, after a warning, if that fails.
  bool keep(const std::string& plans) const {
    try {
      expect(!path_.empty(), "neither XDG_CACHE_HOME nor HOME is set");
      write_file(path_, plans);
      return true;
    } catch (const std::exception& problem) {
      log_warning(concat("cannot save the tuned plans (", problem.what(),
                         "): another run may choose other plans, and its bits then differ"));
      return false;
    }
  }

 private:
  void wait_for_lock(double patience) {
    const Clock::time_point begin = Clock::now();
    for (bool is_told = false; ::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0; is_told = true) {
      if (errno != EWOULDBLOCK)
        return log_warning(
            concat(path_, " cannot be locked (", std::strerror(errno), "): tune in one run at a time"));
      require(seconds_since(begin) < patience, "train.tune_matmul: after ", patience,
              " s another run still locks ", path_, ": end that run, or wait until it trains");
      if (stop_was_requested()) return;
      if (!is_told) log_info(concat("waiting for another run, which is tuning into ", path_));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  std::string path_;
  Descriptor lock_;
};

/// Runs a micro-batch forward and backward. Only the plans that this makes are kept.
void run_once(const Job& job, const TrainingTask& task) {
  std::vector<int64_t> indices(static_cast<size_t>(job.micro_batch()));
  std::iota(indices.begin(), indices.end(), 0);
  for (int64_t& index : indices) index %= task.training_data()->size();
  const Batch batch = collect(*task.training_data(), indices, current_stream());
  backward(task.loss(batch.inputs, batch.targets, {.training = true}));
  synchronize(current_stream());
}

/// Returns the plans of this run's matmuls. Times the shapes that no earlier run has tuned.
std::string tune(const Job& job, const TrainingTask& task) {
  // The other ranks wait without a deadline. Only this limit keeps them from waiting for ever.
  const PlansFile file(job.dist.timeout_s);
  if (stop_was_requested()) return {};
  file.load();
  const std::string before = export_matmul_plans();
  set_matmul_tuning(true);
  run_once(job, task);
  set_matmul_tuning(false);
  const std::string all = export_matmul_plans();
  const bool is_kept = all == before || file.keep(all);
  // Drops plans of shapes that this run has not used: bits must not depend on the runs that tuned them.
  const std::string used = export_matmul_plans(true);
  log_info(concat(
      "this run's bits depend on tuned matmul plans, ", hash_text(hash_of(used)),
      is_kept ? concat(", kept in ", file.path(), ": copy that file to get the same bits on another machine")
              : ", which are not saved"));
  return used;
}

}  // namespace

void choose_matmul_plans(const Job& job, const World& world, const TrainingTask& task,
                         const std::string& from_snapshot) {
  if (device_of(current_stream()) == Device::cpu) return;
  // Each rank asks its own library for shapes without a plan, so the libraries must be equal.
  require_equal_on_all_ranks(world.communicator(), "GPU model or cuBLASLt", place_of_matmul_plans() + "\n");
  std::string plans = from_snapshot;
  on_first_rank(world, [&] {
    if (!job.compute.tune_matmul) return;
    if (plans.empty())
      plans = tune(job, task);
    else
      log_info(concat("matmuls use the plans of the resumed run, ", hash_text(hash_of(plans))));
  });
  import_matmul_plans(world.communicator().broadcast_text(plans, 0));
  release_cached_memory(current_stream());
}

}  // namespace lockstep
