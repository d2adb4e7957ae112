// SPDX-License-Identifier: Apache-2.0
// A GPU that is lost while ranks run the same operations. Only the emulator can lose one.
#include "dist/cuda/gpu_training.h"

namespace lockstep {
namespace {

#if defined(LOCKSTEP_EMULATED)
const bool gpu_is_lost = ::setenv("LOCKSTEP_EMULATED_GPU_LOST_AFTER", "1000", 1) == 0;

/// Ends the process with 0 if the error at the end of a pass reached the caller. A lost GPU frees no memory,
/// so no destructor may run.
void lose_gpu_before_the_end_of_a_pass() {
  run_gpu_ranks(1, [](Communicator& communicator, const Stream&) {
    const Model model;
    ParameterSpace space(model.parameters);
    DataParallel ddp(space, World(communicator.shared_from_this()), {.offload = Offload::all});
    const Tensor values = zeros({static_cast<int64_t>(values_of(0, 0, 0).size())});
    ddp.together([&] { model.loss(values); });
    bool is_body_done = false;
    std::string error;
    try {
      ddp.together([&] {
        model.parameters.front().tensor.view();  // so the next unit is on its way at the end
        try {
          while (true) fill(values, 0.0);
        } catch (const Error&) {
          is_body_done = true;
        }
      });
    } catch (const Error& failure) {
      error = failure.what();
    }
    std::_Exit(is_body_done && error.find("illegal") != std::string::npos ? 0 : 3);
  });
}
#endif

TEST(LostGpu, AnErrorAtTheEndOfAPassReachesTheCaller) {
#if defined(LOCKSTEP_EMULATED)
  ASSERT_TRUE(gpu_is_lost);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(lose_gpu_before_the_end_of_a_pass(), testing::ExitedWithCode(0), "");
#else
  GTEST_SKIP() << "only the emulator can lose a GPU";
#endif
}

}  // namespace
}  // namespace lockstep
