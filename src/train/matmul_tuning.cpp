// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "core/event.h"
#include "core/file.h"
#include "core/gpu.h"
#include "core/log.h"
#include "core/memory.h"
#include "kernels/matmul_plans.h"
#include "tensor/autograd.h"
#include "train/run.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Where this kind of GPU's plans are kept; empty where nothing can be kept.
fs::path plans_file() {
  const std::string folder = cache_folder();
  if (folder.empty()) return {};
  std::string gpu = describe_gpu(gpu_of(current_stream()));
  for (char& letter : gpu)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  return fs::path(folder) / ("matmul_plans-" + gpu + ".txt");
}

/// What earlier runs found; nothing if it was made with another cuBLASLt.
void load_kept_plans(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  try {
    import_matmul_plans({std::istreambuf_iterator<char>(file), {}});
  } catch (const UserError& problem) {
    log_warning(concat(path.string(), ": ", problem.what(), "; its plans are made anew"));
  }
}

void keep_plans(const fs::path& path, const std::string& plans) {
  try {
    expect(!path.empty(), "neither XDG_CACHE_HOME nor HOME is set");
    fs::create_directories(path.parent_path());
    write_file(path.string(), plans);
    log_info(concat("the plans of this run's products are kept in ", path.string()));
  } catch (const std::exception& problem) {
    log_warning(concat("the plans of this run's products could not be kept (", problem.what(),
                       "): another run may find others, and then has other bits"));
  }
}

/// A micro-batch forward and backward; of the results only the plans are kept.
void run_once(const Config& config, const TrainingTask& task) {
  std::vector<int64_t> indices(static_cast<size_t>(config.train.batch_size / config.train.accumulate));
  std::iota(indices.begin(), indices.end(), 0);
  for (int64_t& index : indices) index %= task.training_data->size();
  const Batch batch = collect(*task.training_data, indices, current_stream());
  backward(task.loss(batch.inputs, batch.targets, {.training = true}));
  synchronize(current_stream());
}

}  // namespace

void settle_matmul_plans(const Config& config, const World& world, const TrainingTask& task,
                         const std::string& from_snapshot) {
  if (device_of(current_stream()) == Device::cpu) return;
  std::string plans = from_snapshot;
  if (plans.empty() && config.train.tune_matmul && world.is_first()) {
    const fs::path path = plans_file();
    import_matmul_plans("");
    if (!path.empty()) load_kept_plans(path);
    const std::string kept = export_matmul_plans();
    set_matmul_tuning(true);
    run_once(config, task);
    set_matmul_tuning(false);
    if (const std::string all = export_matmul_plans(); all != kept) keep_plans(path, all);
    // What other runs have found for shapes that this run meets later must not show in it.
    plans = export_matmul_plans(true);
  }
  import_matmul_plans(world.communicator().broadcast_text(plans, 0));
  release_cached_memory(current_stream());
}

}  // namespace lockstep
