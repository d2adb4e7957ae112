// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <gtest/gtest.h>

#include "lockstep/core/file.h"
#include "lockstep/job/load_job.h"
#include "step/step_table.h"
#include "support/temporary_directory.h"

namespace lockstep {
namespace {

/// Returns the configuration of the page: one replica of configs/gpt2_124m.ini.
Job gpt2(const char* change = "dist.replicas=1") {
  const std::string file = LOCKSTEP_SOURCE_DIR "/configs/gpt2_124m.ini";
  const char* words[] = {"step_tests",      "--config",           file.c_str(),
                         "dist.replicas=1", "snapshot.path=none", change};
  return job_of(load_settings(split_arguments(static_cast<int>(std::size(words)), words)));
}

const StepTable& gpt2_table() {
  static const StepTable table(record_step(gpt2()));
  return table;
}

// The figures of the page, rounded up. Lower them when a change makes the step smaller.
TEST(StepTable, KeepsItsBounds) {
  const StepSum& sum = gpt2_table().sum();
  EXPECT_LE(sum.launches, 313);
  EXPECT_LE(sum.cost.bytes, 149.5e9);
  EXPECT_LE(sum.seconds, 101.7e-3);
}

TEST(StepTable, IsThePage) {
  const std::string file = LOCKSTEP_SOURCE_DIR "/docs/kernels/step.md", page = step_page(gpt2_table());
  EXPECT_LE(page.size(), 12000U);
  if (std::getenv("LOCKSTEP_RENEW_STEP") != nullptr) write_file(file, page);
  EXPECT_EQ(read_text(file), page) << "LOCKSTEP_RENEW_STEP=1 build/emulated/bin/step_tests renews it";
}

// 6 operations for each weight and token, and 7 products of attention in the backward after 2 in the forward.
TEST(StepTable, CountsTheOperationsOfTheModel) {
  const double tokens = 65536, weights = 12.0 * 12 * 768 * 768 + 50304.0 * 768;
  EXPECT_DOUBLE_EQ(gpt2_table().sum_of(Part::products).cost.flops, 6 * weights * tokens);
  EXPECT_DOUBLE_EQ(gpt2_table().sum_of(Part::attention).cost.flops, 9.0 * 12 * tokens * 768 * 1024);
}

// Each layer adds the same launches, so none of a layer's launches is missing or taken for another's.
TEST(StepTable, GrowsWithLayers) {
  const auto launches = [](const char* change) {
    return StepTable(record_step(gpt2(change))).sum().launches;
  };
  const int one = launches("model.n_layer=1"), two = launches("model.n_layer=2");
  EXPECT_EQ(gpt2_table().sum().launches, one + 11 * (two - one));
  EXPECT_GE(two - one, 20);
}

}  // namespace
}  // namespace lockstep
