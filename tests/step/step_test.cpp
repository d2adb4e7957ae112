// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <gtest/gtest.h>

#include "core/file.h"
#include "step/step_table.h"
#include "support/temporary_directory.h"

namespace lockstep {
namespace {

/// Returns the configuration of the page: one replica of configs/gpt2_124m.ini.
Config gpt2(const char* change = "dist.replicas=1") {
  const std::string file = LOCKSTEP_SOURCE_DIR "/configs/gpt2_124m.ini";
  const char* words[] = {"step_tests",      "--config",           file.c_str(),
                         "dist.replicas=1", "snapshot.path=none", change};
  return load_config(split_arguments(static_cast<int>(std::size(words)), words));
}

const StepTable& gpt2_table() {
  static const StepTable table(record_step(gpt2()));
  return table;
}

// The figures of the page, rounded up. Lower them when a change makes the step smaller.
TEST(StepTable, KeepsItsBounds) {
  const StepSum& sum = gpt2_table().sum();
  EXPECT_LE(sum.launches, 354);
  EXPECT_LE(sum.cost.bytes, 156.46e9);
  EXPECT_LE(sum.seconds, 104.1e-3);
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

// A layer more adds the same launches as each of the twelve, so the table sees what a step launches.
TEST(StepTable, SeesALayerMore) {
  const StepTable more(record_step(gpt2("model.n_layer=13")));
  const auto of_layers = [](const StepTable& table, int layers) {
    int launches = 0;
    for (const StepRow& row : table.rows()) launches += row.count % layers == 0 ? row.count : 0;
    return launches;
  };
  const int each = of_layers(gpt2_table(), 12) / 12;
  EXPECT_EQ(more.sum().launches, gpt2_table().sum().launches + each);
  EXPECT_GT(each, 20);
}

}  // namespace
}  // namespace lockstep
