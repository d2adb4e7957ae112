// SPDX-License-Identifier: Apache-2.0
#include "comm/launch.h"

#include <algorithm>
#include <vector>

#include "comm/local_communicator.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace lockstep {
namespace {

int run_on_threads(int ranks, const std::function<int(const World&)>& body) {
  std::vector<int> codes(static_cast<size_t>(ranks), 0);
  run_ranks(ranks, [&](Communicator& communicator) {
    codes[static_cast<size_t>(communicator.rank())] = body(World(communicator.shared_from_this()));
  });
  const auto failed = std::find_if(codes.begin(), codes.end(), [](int code) { return code != 0; });
  return failed == codes.end() ? 0 : *failed;
}

}  // namespace

int launch_ranks(int ranks, const std::function<int(const World&)>& body) {
  return run_program([&] {
    const World world = World::from_environment();
    // A launcher may have started just one rank, so the size of the world does not tell.
    const bool is_launched = dynamic_cast<LocalCommunicator*>(&world.communicator()) == nullptr;
    if (!is_launched) return run_on_threads(ranks > 0 ? ranks : available_cores(), body);
    require(ranks == 0 || ranks == world.size(), ranks, " ranks were asked for, but the launcher started ",
            world.size());
    return body(world);
  });
}

}  // namespace lockstep
