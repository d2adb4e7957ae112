// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/parameter_check.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/error.h"
#include "lockstep/dist/parameters_hash.h"
#include "lockstep/tensor/create.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

TEST(ParameterCheck, ARankWithOneOtherBitIsNamedByTheMajorityAndOfTwoBoth) {
  const std::vector<std::string> both = {"after step 4", "rank 0 (", "rank 1 (", "no snapshot"};
  const std::vector<std::string> second = {"after step 4", "of rank 1 (", "differ from the others ("};
  for (const int ranks : {1, 2, 3, 4})
    run_ranks(ranks, [&](Communicator& communicator) {
      const World world(communicator.shared_from_this());
      const Tensor weight = full({3, 5}, 0.5);
      ParameterSpace space({{"weight", weight}});
      DataParallel data_parallel(space, world, {});
      ParameterCheck check(world, space, data_parallel);
      const uint64_t hash = check.compare(3);
      EXPECT_EQ(hash, parameters_hash({{"weight", full({3, 5}, 0.5)}}));
      check.compare_if_cheap(3);
      if (world.rank() == 1) static_cast<uint32_t*>(weight.view().data)[7] ^= 1;
      std::string said;
      try {
        check.compare(4);
      } catch (const UserError& error) {
        ADD_FAILURE() << "not a UserError, because a restart may help: " << error.what();
      } catch (const Error& error) {
        said = error.what();
      }
      if (ranks > 1) expect_contains(said, ranks == 2 ? both : second);
      EXPECT_EQ(said.find("rank 2"), std::string::npos) << said;
    });
}

}  // namespace
}  // namespace lockstep
