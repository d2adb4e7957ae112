// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul_plans.h"

#include <algorithm>
#include <sstream>

#include "core/event.h"
#include "core/graph.h"
#include "kernels/kernel.h"
#include "kernels/matmul.h"
#include "support/cuda.h"

namespace lockstep {
namespace {

/// A product whose rows are all multiples of 16 bytes, so that every algorithm is at hand.
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
    const bool is_added_in_order = lines[i].find(" reduction=2 ") != std::string::npos;
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

// A run must not see what other runs have found for shapes that it has not met yet.
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
  // The stand-in's algorithm 2 cuts k, which its algorithm 1 does not.
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
  // Reduction scheme 1 adds parts in the output, in its dtype.
  const std::string zero = "0000000000000000";
  import_matmul_plans(replaced(text, "0000000000000001" + zero, "0000000100000001" + zero));
  EXPECT_THROW(p.run(), Error);
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
      EXPECT_NE(message.find("snapshot.path"), std::string::npos) << message;
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
      // Two roundings to the dtype of numbers below 64, and sums of 96 terms in another order.
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
