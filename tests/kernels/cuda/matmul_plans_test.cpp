// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/matmul_plans.h"

#include <algorithm>
#include <sstream>

#include "lockstep/core/graph.h"
#include "lockstep/core/stream.h"
#include "lockstep/kernels/cuda/matmul_plan.h"
#include "lockstep/kernels/kernel.h"
#include "lockstep/kernels/matmul.h"
#include "support/cuda.h"

#if defined(LOCKSTEP_EMULATED)
#include "emulator/emulator.h"
#endif

namespace lockstep {
namespace {

/// A product whose rows are all multiples of 16 bytes, so that every algorithm is available.
struct Problem {
  explicit Problem(DType dtype = DType::f32, int64_t m = 24)
      : a(normal_values(m * 96, 1, dtype), {m, 96}, dtype),
        b(normal_values(96 * 40, 2, dtype), {96, 40}, dtype),
        c({m, 40}, dtype),
        kernel{.a = a.view(), .b = b.view(), .c = c.view()} {}

  std::vector<uint8_t> run() const {
    launch(gpu_stream(), kernel);
    return c.bits();
  }

  DeviceArray a, b, c;
  MatMul kernel;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) throw Error("no '" + from + "' in " + text);
  return text.replace(at, from.size(), to);
}

class MatMulPlans : public ::testing::Test {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_GPU();
    import_matmul_plans("");
  }
  void TearDown() override { set_matmul_tuning(false); }
};

TEST_F(MatMulPlans, NoProductNoPlan) { EXPECT_EQ(export_matmul_plans(), ""); }

/// Returns the first choice of a default plan on a GPU of this compute capability (10 * major + minor).
cuda::Epilogue default_epilogue(const cuda::MatMulKey& key, int capability) {
  return cuda::default_epilogues_for(key, capability).of[0];
}

TEST(DefaultEpilogues, AreFusedOnlyWhereTheyAreKnownToBeFast) {
  using cuda::Epilogue;
  const cuda::MatMulKey sizes{.m = 64, .n = 64, .k = 64, .dtype = DType::bf16, .c_dtype = DType::bf16};
  cuda::MatMulKey gelu = sizes, gradient = sizes, sums = sizes;
  gelu.bias = gelu.pre_activation = true;
  gelu.activation = Activation::gelu_tanh;
  gradient.pre_activation = true;
  gradient.activation = Activation::gelu_tanh_backward;
  sums.c_dtype = DType::f32;
  sums.column_sum = true;
  for (const int capability : {80, 86, 89}) {
    EXPECT_EQ(default_epilogue(gelu, capability), Epilogue::bias) << capability;
    EXPECT_EQ(default_epilogue(gradient, capability), Epilogue::none) << capability;
    EXPECT_EQ(default_epilogue(sums, capability), Epilogue::none) << capability;
  }
  for (const int capability : {90, 100}) {
    EXPECT_EQ(default_epilogue(gelu, capability), Epilogue::gelu_aux_bias) << capability;
    EXPECT_EQ(default_epilogue(gradient, capability), Epilogue::dgelu) << capability;
    EXPECT_EQ(default_epilogue(sums, capability), Epilogue::column_sum) << capability;
  }
  EXPECT_EQ(default_epilogue(gelu, 120), Epilogue::bias);
  EXPECT_EQ(cuda::epilogues_for(gelu).of[0], Epilogue::gelu_aux_bias) << "tuning tries all";
}

TEST_F(MatMulPlans, AreSortedALineEachAndNameTheirPlace) {
  for (const int64_t m : {32, 8, 16}) Problem(DType::bf16, m).run();
  Problem(DType::bf16, 8).run();
  const std::vector<std::string> lines = lines_of(export_matmul_plans());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_NE(lines[0].find(describe_gpu(0)), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("cuBLASLt"), std::string::npos) << lines[0];
  EXPECT_TRUE(lines[1].starts_with("m=8 n=40 k=96 ")) << lines[1];
  EXPECT_TRUE(lines[2].starts_with("m=16 ")) << lines[2];
  EXPECT_TRUE(lines[3].starts_with("m=32 ")) << lines[3];
}

TEST_F(MatMulPlans, OnlyDeterministicAlgorithmsAreTaken) {
  for (const bool tuning : {false, true}) {
    set_matmul_tuning(tuning);
    for (int64_t m = 1; m < 9; ++m) Problem(DType::f32, m + (tuning ? 8 : 0)).run();
  }
  const std::vector<std::string> lines = lines_of(export_matmul_plans());
  ASSERT_EQ(lines.size(), 17u);
  for (size_t i = 1; i < lines.size(); ++i) {
    const bool is_whole = lines[i].find(" split_k=1 reduction=0 ") != std::string::npos;
    // Partial sums are added in order, in fp32 in the workspace. For an fp32 result that is scheme 2 (the
    // type of sums) or 4 (the type of the output).
    const bool is_added_in_order = lines[i].find(" reduction=2 ") != std::string::npos ||
                                   lines[i].find(" reduction=4 ") != std::string::npos;
    EXPECT_TRUE(is_whole || is_added_in_order) << lines[i];
  }
}

TEST_F(MatMulPlans, ARoundTripKeepsTextAndBits) {
  Problem p;
  set_matmul_tuning(true);
  const std::vector<uint8_t> bits = p.run();
  set_matmul_tuning(false);
  const std::string text = export_matmul_plans();
  import_matmul_plans("");
  EXPECT_EQ(export_matmul_plans(), "");
  import_matmul_plans(text);
  EXPECT_EQ(export_matmul_plans(), text);
  EXPECT_EQ(p.run(), bits);
  EXPECT_EQ(export_matmul_plans(), text);
}

// A run exports only the plans it used. It must not see plans that other runs found for shapes it has not
// met.
TEST_F(MatMulPlans, ThoseThatWereTakenCanBeToldFromTheOthers) {
  Problem(DType::f32, 8).run();
  Problem(DType::f32, 16).run();
  const std::string all = export_matmul_plans();
  EXPECT_EQ(export_matmul_plans(true), all);
  import_matmul_plans(all);
  EXPECT_EQ(export_matmul_plans(true), "");
  Problem(DType::f32, 16).run();
  Problem(DType::f32, 32).run();
  const std::vector<std::string> taken = lines_of(export_matmul_plans(true));
  ASSERT_EQ(taken.size(), 3u);
  EXPECT_TRUE(taken[1].starts_with("m=16 ")) << taken[1];
  EXPECT_TRUE(taken[2].starts_with("m=32 ")) << taken[2];
  EXPECT_EQ(lines_of(export_matmul_plans()).size(), 4u);
}

#if defined(LOCKSTEP_EMULATED)
TEST_F(MatMulPlans, AnImportedPlanIsWhatRuns) {
  Problem p;
  const std::vector<uint8_t> bits = p.run();
  const std::string text = export_matmul_plans();
  // Algorithm 2 of the emulated cuBLASLt splits k, and algorithm 1 does not.
  const std::string other = replaced(text, "words=000000014c740004", "words=000000024c740004");
  import_matmul_plans(other);
  EXPECT_NE(p.run(), bits);
  import_matmul_plans(text);
  EXPECT_EQ(p.run(), bits);
}

TEST_F(MatMulPlans, AnAlgorithmThatCannotRunIsRefused) {
  Problem p;
  p.run();
  const std::string text = export_matmul_plans();
  import_matmul_plans(replaced(text, "words=000000014c740004", "words=0000000100000000"));
  EXPECT_THROW(p.run(), Error);
  // Reduction scheme 1 adds partial sums in the output, in the output's dtype.
  const std::string zero = "0000000000000000";
  import_matmul_plans(replaced(text, "0000000000000001" + zero, "0000000100000001" + zero));
  EXPECT_THROW(p.run(), Error);
}

/// Restrictions that cuBLASLt may have. The emulated cuBLASLt simulates them on request.
class MatMulFallbacks : public MatMulPlans {
 protected:
  void TearDown() override {
    emulator::cublaslt_limits() = {};
    MatMulPlans::TearDown();
  }

  /// Checks that the product is right. Returns its plan and the log lines about it.
  std::pair<std::string, std::string> plan_of(Problem& problem) {
    testing::internal::CaptureStderr();
    problem.run();
    const std::string said = testing::internal::GetCapturedStderr();
    const std::vector<double> result = problem.c.values(), a = problem.a.values(), b = problem.b.values();
    for (size_t i = 0; i < result.size(); ++i) {
      double sum = 0.0;
      for (size_t k = 0; k < 96; ++k) sum += a[i / 40 * 96 + k] * b[k * 40 + i % 40];
      EXPECT_NEAR(result[i], sum, problem.c.view().dtype == DType::f32 ? 1e-4 : 64 * 0x1p-8) << i;
    }
    return {lines_of(export_matmul_plans()).back(), said};
  }
};

TEST_F(MatMulFallbacks, WhatTheCheckRefusesIsNotTaken) {
  emulator::cublaslt_limits().refused = {1};
  emulator::cublaslt_limits().more_workspace = uint64_t{40} << 20;
  set_matmul_tuning(true);
  Problem p;
  const auto [plan, said] = plan_of(p);
  EXPECT_NE(plan.find("algorithm=2 "), std::string::npos) << plan;
  for (const char* part : {"m=24 n=40 k=96 ", "1 kept", "1 dropped: cuBLASLt's check refuses it",
                           "2 dropped: needs more workspace than is allowed", "takes the fastest"})
    EXPECT_NE(said.find(part), std::string::npos) << part << " in " << said;
  set_matmul_tuning(false);
  import_matmul_plans("");
  EXPECT_EQ(plan_of(p), std::pair(plan, std::string())) << "no log line without tuning";
}

TEST_F(MatMulFallbacks, TheCheckMayAskForMoreWorkspaceThanTheSuggestion) {
  emulator::cublaslt_limits().refused = {1};
  emulator::cublaslt_limits().more_workspace = 1 << 20;
  Problem p(DType::bf16);
  const std::string plan = plan_of(p).first;
  EXPECT_NE(plan.find("split_k=2 reduction=2 "), std::string::npos) << plan;
  EXPECT_NE(plan.find(concat("workspace=", 2 * 24 * 40 * 4 + (1 << 20))), std::string::npos) << plan;
}

TEST_F(MatMulFallbacks, AnAttributeThatCannotBeReadEndsNothing) {
  constexpr int split_k = 2, reduction = 3, cluster = 8;  // values of cublasLtMatmulAlgoConfigAttributes_t
  for (const auto& [attribute, shown] : {std::pair{cluster, "cluster=?"}, std::pair{reduction, "reduction=?"},
                                         std::pair{split_k, "split_k=?"}}) {
    import_matmul_plans("");
    emulator::cublaslt_limits() = {.unreadable = attribute};
    Problem p;
    const auto [plan, said] = plan_of(p);
    EXPECT_NE(plan.find(shown), std::string::npos) << plan;
    EXPECT_NE(plan.find("algorithm=1 "), std::string::npos)
        << "algorithm 1 does not split k, so no order is needed";
    EXPECT_EQ(said, "");
  }
  const auto plan_without = [&](std::set<uint32_t> refused, int unreadable) {
    import_matmul_plans("");
    emulator::cublaslt_limits() = {.unreadable = unreadable, .refused = std::move(refused)};
    Problem p;
    return plan_of(p);
  };
  EXPECT_NE(plan_without({1}, reduction).first.find("algorithm=2 "), std::string::npos)
      << "an algorithm with a known order is preferred";
  const auto [known, nothing] = plan_without({1, 2}, split_k);
  EXPECT_NE(known.find("algorithm=3 "), std::string::npos) << known;
  EXPECT_EQ(nothing, "") << "the reduction scheme alone gives the order";
  const auto [unknown, said] = plan_without({1, 2}, reduction);
  EXPECT_NE(unknown.find("algorithm=3 "), std::string::npos) << unknown;
  EXPECT_NE(said.find("cuBLASLt does not report the order of its additions: m=24 "), std::string::npos)
      << said;
}

TEST_F(MatMulFallbacks, AKernelSumsTheColumnsThatTheLibraryDoesNot) {
  Problem p;
  const DeviceArray sums({40}, DType::f32), expected({40}, DType::f32);
  p.kernel.column_sum = expected.view();
  p.run();
  EXPECT_NE(export_matmul_plans().find("epilogue=column_sum"), std::string::npos);
  import_matmul_plans("");
  emulator::cublaslt_limits().has_sums = false;
  p.kernel.column_sum = sums.view();
  const auto [plan, said] = plan_of(p);
  EXPECT_NE(plan.find("epilogue=none"), std::string::npos) << plan;
  EXPECT_NE(said.find("cuBLASLt cannot sum these columns, so a kernel does: m=24 "), std::string::npos)
      << said;
  const std::vector<double> values = sums.values(), others = expected.values();
  // The two sums add 96 terms of order one in different orders.
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], others[i], 1e-4) << i;
}

TEST_F(MatMulFallbacks, AKeptPlanThatDoesNotRunIsMadeAnewByWhoTunes) {
  Problem p;
  p.run();
  const std::string text = export_matmul_plans();
  import_matmul_plans(text);
  emulator::cublaslt_limits().refused = {1};
  EXPECT_THROW(p.run(), UserError) << "a snapshot's plan cannot be replaced";
  set_matmul_tuning(true);
  const auto [plan, said] = plan_of(p);
  EXPECT_EQ(plan.find("algorithm=1 "), std::string::npos) << plan;
  EXPECT_NE(said.find("a stored plan does not run (cuBLASLt's check refuses it)"), std::string::npos) << said;
}
#endif

TEST_F(MatMulPlans, ThoseOfAnotherGpuOrLibraryAreRefused) {
  Problem().run();
  const std::string text = export_matmul_plans();
  const std::string gpu = replaced(text, gpu_properties(0).name, "NVIDIA Nobody");
  const std::string library = replaced(text, "cuBLASLt ", "cuBLASLt 9");
  for (const std::string& foreign : {gpu, library, std::string("anything\n")}) try {
      import_matmul_plans(foreign);
      ADD_FAILURE() << "accepted " << foreign;
    } catch (const UserError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(lines_of(foreign)[0]), std::string::npos) << message;
      EXPECT_NE(message.find(describe_gpu(0)), std::string::npos) << message;
      EXPECT_NE(message.find("import other plans"), std::string::npos) << message;
    }
  EXPECT_EQ(export_matmul_plans(), text) << "a refused text changed the table";
}

TEST_F(MatMulPlans, DamagedOnesAreRefused) {
  Problem().run();
  const std::string text = export_matmul_plans();
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{"m=24", "m=x"},
                                                                                 {" k=96", ""},
                                                                                 {"dtype=f32", "dtype=f33"},
                                                                                 {"words=0", "words="},
                                                                                 {"epilogue=none", ""}})
    EXPECT_THROW(import_matmul_plans(replaced(text, from, to)), UserError) << from;
  EXPECT_EQ(export_matmul_plans(), text);
}

TEST_F(MatMulPlans, TuningLeavesResultsRight) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Problem plain(dtype);
    const std::vector<double> expected = (plain.run(), plain.c.values());
    import_matmul_plans("");
    set_matmul_tuning(true);
    Problem tuned(dtype);
    const DeviceArray residual(std::vector<double>(24 * 40, 1.0), {24, 40}, dtype);
    tuned.kernel.residual = tuned.kernel.c = residual.view();
    launch(gpu_stream(), tuned.kernel);
    const std::vector<double> result = residual.values();
    for (size_t i = 0; i < expected.size(); ++i)
      // Two roundings to the dtype of numbers below 64, and two orders of a sum of 96 terms.
      ASSERT_NEAR(result[i], expected[i] + 1.0, dtype == DType::f32 ? 1e-3 : 64 * 0x1p-8) << i;
    EXPECT_EQ(lines_of(export_matmul_plans()).size(), 2u);
    set_matmul_tuning(false);
    import_matmul_plans("");
  }
}

TEST_F(MatMulPlans, NothingIsTimedWhileAGraphIsRecorded) {
  const Problem p;
  const std::vector<uint8_t> bits = p.run();
  const std::string first = export_matmul_plans();
  import_matmul_plans("");
  set_matmul_tuning(true);
  const Graph graph(gpu_stream(), [&] { launch(gpu_stream(), p.kernel); });
  graph.launch();
  EXPECT_EQ(p.c.bits(), bits);
  EXPECT_EQ(export_matmul_plans(), first);
}

}  // namespace
}  // namespace lockstep
