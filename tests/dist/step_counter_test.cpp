// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lockstep/kernels/grad_scale.h"
#include "lockstep/movement/movement.h"
#include "lockstep/tensor/create.h"

namespace lockstep::step_counter_test {
namespace {

// The host has started three steps. The GPU reaches one after another.
TEST(StepCounter, CountsPast32Bits) {
  for (const int64_t first : {int64_t{0}, (int64_t{1} << 24) - 1, (int64_t{1} << 31) - 2,
                              (int64_t{1} << 32) - 2, (int64_t{5} << 32) - 1}) {
    const Tensor count = from_values(std::vector{static_cast<int32_t>(static_cast<uint32_t>(first))}, {});
    const Tensor factor = zeros({});
    for (int64_t reached = first; reached < first + 4; ++reached) {
      const int32_t counter = count.data<int32_t>()[0];
      for (int64_t step = first + 1; step <= first + 3; ++step)
        EXPECT_EQ(has_counted(counter, step), step <= reached) << "step " << step << " after " << reached;
      launch(cpu_stream(), CountStep{.count = count.view(), .factor = factor.view()});
    }
  }
}

}  // namespace
}  // namespace lockstep::step_counter_test
