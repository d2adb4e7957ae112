// SPDX-License-Identifier: Apache-2.0
#include "train/program.h"

#include <iostream>
#include <utility>

#include "core/error.h"
#include "core/gpu.h"
#include "core/log.h"
#include "core/text.h"
#include "core/version.h"
#include "snapshot/found_run.h"
#include "train/stop_request.h"

namespace lockstep {

namespace {

void require_same_configuration(const Config& config, const World& world) {
  std::string lines = scope_of_bits();
  for (const ConfigValue& value : config_values(config))
    if (value.key_class != KeyClass::local) lines += concat(value.key, " = ", value.value, "\n");
  require_equal_on_all_ranks(world.communicator(), "the configuration", lines);
}

/// What rank 0 finds of an earlier run decides on all ranks.
void adopt_from_earlier_run(Config& config, const World& world) {
  std::string there;
  on_first_rank(world, [&] { there = settings_to_go_on_with(config); });
  there = world.communicator().broadcast_text(there, 0);
  if (there.empty()) return;
  const auto adopted = adopt_unset(config, config_of_earlier_run(there, "the earlier run"));
  if (world.is_first() && !adopted.empty())
    log_info(concat("not set, so as in the run that goes on: ", joined(adopted)));
}

}  // namespace

void settle(Config& config, const World& world) {
  config = checked(std::move(config));
  world.communicator().set_timeout(config.dist.timeout_s);
  settle_device(config);
  adopt_from_earlier_run(config, world);
  settle_device(config);  // it may have to be the earlier run's
  settle_replicas(config, world.size());
  require_same_configuration(config, world);
  if (config.train.threads == 0) config.train.threads = world.share_of_cores();
  set_threads(static_cast<int>(config.train.threads));
  config.is_settled = true;
}

int answer(const std::string& text) {
  if (is_launched_first()) std::cout << text << (text.ends_with('\n') ? "" : "\n") << std::flush;
  return 0;
}

World start_world(Config& config) {
  listen_for_stop_requests();
  const World world = World::from_environment();
  set_log_rank(world.rank(), !world.is_first());
  settle(config, world);
  if (config.train.device == "cuda") {
    set_current_stream(make_gpu_stream(world.gpu()));
    require_equal_on_all_ranks(world.communicator(), "their GPUs",
                               describe_gpu(gpu_of(current_stream())) + "\n");
  }
  return world;
}

}  // namespace lockstep
