// SPDX-License-Identifier: Apache-2.0
#include "train/program.h"

#include <filesystem>

#include "core/error.h"
#include "core/gpu.h"
#include "core/log.h"
#include "train/processor_peak.h"
#include "train/rank_table.h"
#include "train/stop_request.h"

namespace lockstep {

void require_same_configuration(const Config& config, const World& world) {
  std::string lines = concat("instruction set = ", instruction_set(), "\n", "compiler = ", __VERSION__, "\n");
  for (const ConfigValue& value : config_values(config))
    if (value.key_class != KeyClass::local) lines += concat(value.key, " = ", value.value, "\n");
  require_equal_on_all_ranks(world.communicator(), "the configuration", lines);
}

void make_log_folder(const Config& config) {
  std::error_code problem;
  std::filesystem::create_directories(config.log.dir, problem);
  require(!problem, "log.dir: ", config.log.dir, " cannot be made: ", problem.message());
}

World start_world(Config& config) {
  listen_for_stop_requests();
  const World world = World::from_environment();
  set_log_rank(world.rank(), !world.is_first());
  settle_replicas(config, world.size());
  world.communicator().set_timeout(config.dist.timeout_s);
  require_same_configuration(config, world);
  if (config.train.device == "cuda") {
    set_current_stream(make_gpu_stream(world.gpu()));
    require_equal_on_all_ranks(world.communicator(), "their GPUs",
                               describe_gpu(gpu_of(current_stream())) + "\n");
  }
  if (config.train.threads == 0) config.train.threads = world.share_of_cores();
  set_threads(static_cast<int>(config.train.threads));
  make_log_folder(config);
  set_log_file(concat(config.log.dir, "/rank", world.rank(), ".log"));
  print_rank_table(world);
  return world;
}

}  // namespace lockstep
