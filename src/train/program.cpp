// SPDX-License-Identifier: Apache-2.0
#include "train/program.h"

#include <filesystem>
#include <iostream>

#include "core/error.h"
#include "core/gpu.h"
#include "core/heartbeat.h"
#include "core/log.h"
#include "core/version.h"
#include "snapshot/found_run.h"
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

void settle_replicas(Config& config, const World& world) {
  if (config.dist.replicas == 0 && (config.snapshot.resume != "never" || restart_count() > 0)) {
    const int64_t own = world.is_first() ? replicas_of_unfinished_run(config) : 0;
    const int64_t earlier = std::stoll(world.communicator().broadcast_text(std::to_string(own), 0));
    if (earlier >= world.size()) config.dist.replicas = earlier;
  }
  settle_replicas(config, world.size());
}

int answer(const std::string& text) {
  if (is_launched_first()) std::cout << text << (text.ends_with('\n') ? "" : "\n") << std::flush;
  return 0;
}

World start_world(Config& config) {
  listen_for_stop_requests();
  const World world = World::from_environment();
  set_log_rank(world.rank(), !world.is_first());
  settle_replicas(config, world);
  world.communicator().set_timeout(config.dist.timeout_s);
  require_same_configuration(config, world);
  if (config.train.device == "cuda") {
    set_current_stream(make_gpu_stream(world.gpu()));
    require_equal_on_all_ranks(world.communicator(), "their GPUs",
                               describe_gpu(gpu_of(current_stream())) + "\n");
  }
  if (config.train.threads == 0) config.train.threads = world.share_of_cores();
  set_threads(static_cast<int>(config.train.threads));
  return world;
}

}  // namespace lockstep
