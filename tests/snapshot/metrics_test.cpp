// SPDX-License-Identifier: Apache-2.0
#include "snapshot/metrics.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "core/error.h"
#include "core/hash.h"
#include "snapshot/parameters_hash.h"
#include "support/temporary_directory.h"
#include "tensor/create.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class Metrics : public testing::Test {
 protected:
  std::string content() const { return read_text(path_); }
  void append(const std::string& text) const { std::ofstream(path_, std::ios::app) << text; }
  void write_steps(int64_t resume_step, int64_t last_step) const {
    MetricsWriter writer(path_, resume_step);
    for (int64_t step = resume_step + 1; step <= last_step; ++step)
      writer.write({.step = step, .loss = 1.0f});
  }

  TemporaryDirectory temporary_;
  const fs::path folder_ = temporary_.path();
  const std::string path_ = folder_ / "results" / "metrics.jsonl";
};

TEST_F(Metrics, OneObjectAStepWithTheKeysOfTheContract) {
  const StepMetrics metrics{.step = 7,
                            .epoch = 2,
                            .unix_seconds = 1795302845.12345,
                            .loss = 4.17f,
                            .learning_rate = 1e-3,
                            .gradient_norm = 2.5,
                            .tokens_per_second = 12345.67,
                            .step_ms = 8.1234567,
                            .exposed_communication_ms = 0.5,
                            .data_wait_ms = 0.25,
                            .model_flops_utilization = 0.5,
                            .memory_mib = 100,
                            .validation_loss = {}};
  EXPECT_EQ(to_json(metrics),
            R"({"step":7,"epoch":2,"time":1795302845.123,"loss":4.17,"loss_bits":"408570a4","lr":0.001,)"
            R"("grad_norm":2.5,"tokens_per_s":12345.7,)"
            R"("step_ms":8.123,"exposed_comm_ms":0.5,"data_wait_ms":0.25,"mfu":0.5,"memory_mib":100.0})");
}

TEST_F(Metrics, TheLossScaleIsThereWhereThereIsOne) {
  const Json line = Json::parse(to_json({.step = 1, .grad_scale = GradScale{32768.0f, 12, 3}}));
  EXPECT_EQ(line["loss_scale"], 32768.0);
  EXPECT_EQ(line["skipped_steps"], 3);
  EXPECT_FALSE(Json::parse(to_json({.step = 1})).contains("loss_scale"));
}

TEST_F(Metrics, ValidationIsThereWhereItWasMeasured) {
  const Json line = Json::parse(to_json({.step = 1, .loss = 0.5f, .validation_loss = 1.9}));
  EXPECT_EQ(line["val_loss"], 1.9);
  EXPECT_EQ(line["val_loss_bits"], "3ff33333");  // 1.9 rounded to fp32
  EXPECT_FALSE(Json::parse(to_json({.step = 1})).contains("val_loss"));
}

TEST_F(Metrics, ALossThatIsNotFiniteIsNullAndExactInItsBits) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  // infinity - infinity is a negative NaN on x86 and a positive one on ARM.
  for (const float loss : {nan, -nan}) {
    const Json line = Json::parse(to_json({.step = 1, .loss = loss, .validation_loss = loss}));
    EXPECT_TRUE(line["loss"].is_null());
    EXPECT_EQ(line["loss_bits"], "7fc00000");
    EXPECT_EQ(line["val_loss_bits"], "7fc00000");
  }
  const Json infinite = Json::parse(to_json({.step = 1, .loss = -std::numeric_limits<float>::infinity()}));
  EXPECT_TRUE(infinite["loss"].is_null());
  EXPECT_EQ(infinite["loss_bits"], "ff800000");
}

TEST_F(Metrics, LinesAreInTheFileAtOnceAndTheLastSaysDone) {
  MetricsWriter writer(path_, 0);
  writer.write({.step = 1, .loss = 2.0f});
  EXPECT_EQ(content(), to_json({.step = 1, .loss = 2.0f}) + "\n");
  writer.finish(0xabcdef);
  EXPECT_TRUE(content().ends_with("\n{\"done\":true,\"parameters_hash\":\"0000000000abcdef\"}\n"));
}

TEST_F(Metrics, AFreshRunStartsAFreshFile) {
  write_steps(0, 5);
  write_steps(0, 2);
  EXPECT_EQ(content(), to_json({.step = 1, .loss = 1.0f}) + "\n" + to_json({.step = 2, .loss = 1.0f}) + "\n");
}

TEST_F(Metrics, AResumedRunLeavesTheFileOfAnUndisturbedOne) {
  write_steps(0, 12);
  const std::string undisturbed = content();
  for (const char* tail : {"", "{\"done\":true,\"parameters_hash\":\"0000000000000001\"}\n",
                           "{\"step\":13,\"lo", "\n", "not JSON\n"}) {
    append(tail);
    write_steps(8, 12);
    EXPECT_EQ(content(), undisturbed) << tail;
  }
}

/// Returns how many bytes this process has read from files so far.
int64_t bytes_read() {
  std::ifstream counts("/proc/self/io");
  std::string name;
  int64_t bytes = 0;
  counts >> name >> bytes;
  return bytes;
}

TEST_F(Metrics, AResumeReadsAsMuchOfALongFileAsOfAShortOne) {
  // Lines of very different lengths: a search by the mean length of a line would miss.
  fs::create_directories(folder_ / "results");
  constexpr int64_t steps = 60000, torn = 31234;
  std::vector<int64_t> ends{0};
  {
    std::ofstream file(path_, std::ios::binary);
    for (int64_t step = 1; step <= steps; ++step) {
      if (step == torn) file << "{\"step\":\n";
      file << "{\"step\":" << step << ",\"note\":\"" << std::string(step % 7 == 0 ? 3000 : 3, 'x') << "\"}\n";
      ends.push_back(file.tellp());
    }
  }
  // Each cut is of the file that the cut before has left.
  for (const int64_t step :
       {steps, steps - 1, torn, torn - 1, int64_t{7777}, int64_t{7}, int64_t{1}, int64_t{0}}) {
    const int64_t before = bytes_read();
    const MetricsWriter writer(path_, step);
    EXPECT_LE(bytes_read() - before, 1'000'000) << step;
    EXPECT_EQ(fs::file_size(path_), ends[step]) << step;
  }
}

TEST_F(Metrics, ATornLineIsDroppedAlsoIfItsStepIsWanted) {
  write_steps(0, 3);
  const std::string whole = content();
  append("{\"step\":4}");
  write_steps(10, 10);
  EXPECT_EQ(content(), whole);
}

TEST_F(Metrics, ALineWhoseStepIsNoNumberIsPassedOver) {
  write_steps(0, 3);
  append("{\"step\":\"four\"}\n{\"step\":null}\n");
  EXPECT_EQ(read_metrics_end(path_).step, 3);
  append("{\"done\":true,\"parameters_hash\":7}\n");
  EXPECT_EQ(read_metrics_end(path_).step, 3);
  EXPECT_EQ(read_metrics_end(path_).parameters_hash, "");
}

TEST_F(Metrics, AFileThatCannotBeWrittenIsRefusedByName) {
  std::ofstream(folder_ / "results") << "a file where the folder should be";
  try {
    MetricsWriter(path_, 0);
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("log.dir: " + path_)) << error.what();
  }
}

TEST_F(Metrics, AFullDiskIsReportedOnceAndNoLineIsTorn) {
  const std::string line = to_json({.step = 1, .loss = 1.0f}) + "\n";
  MetricsWriter writer(path_, 0);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  // A limit on the file size inside the second line acts like a full disk.
  const rlimit limit{line.size() + line.size() / 2, before.rlim_max};
  testing::internal::CaptureStderr();
  setrlimit(RLIMIT_FSIZE, &limit);
  for (int64_t step = 1; step <= 4; ++step) writer.write({.step = step, .loss = 1.0f});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  const std::string report = testing::internal::GetCapturedStderr();
  EXPECT_EQ(content(), line);
  const size_t first = report.find("lines are missing");
  EXPECT_NE(first, std::string::npos) << report;
  EXPECT_EQ(report.find("lines are missing", first + 1), std::string::npos) << report;
  writer.write({.step = 5, .loss = 1.0f});
  EXPECT_EQ(content(), line + to_json({.step = 5, .loss = 1.0f}) + "\n");
}

std::vector<NamedTensor> example() {
  return {{"b.weight", from_values<float>({1, 2, 3, 4, 5, 6}, {2, 3})},
          {"a.bias", from_values<float>({0.5f}, {1})}};
}

TEST(ParametersHash, IsTheOneOfTheDocumentedBytes) {
  // Computed by the reference implementation (xxhash.xxh3_64 of Python) over:
  //   "a.bias\0", int64 1, fp32 0.5, "b.weight\0", int64 2, int64 3, fp32 1 2 3 4 5 6.
  EXPECT_EQ(hash_text(parameters_hash(example())), "2d31ef423beedfca");
}

TEST(ParametersHash, DoesNotDependOnTheOrderOfTheList) {
  std::vector<NamedTensor> parameters = example();
  std::swap(parameters[0], parameters[1]);
  EXPECT_EQ(parameters_hash(parameters), parameters_hash(example()));
}

TEST(ParametersHash, SeesNamesShapesAndEveryBit) {
  const uint64_t hash = parameters_hash(example());
  std::vector<NamedTensor> renamed = example(), reshaped = example(), changed = example();
  renamed[0].name = "b.weighs";
  reshaped[0].tensor = reshaped[0].tensor.reshape({3, 2});
  changed[1].tensor.data<float>()[0] = 0x1.000002p-1f;
  EXPECT_NE(parameters_hash(renamed), hash);
  EXPECT_NE(parameters_hash(reshaped), hash);
  EXPECT_NE(parameters_hash(changed), hash);
}

TEST(ParametersHash, ATiedWeightCountsOnce) {
  std::vector<NamedTensor> tied = example();
  tied.push_back({"z.weight", tied[0].tensor});
  EXPECT_EQ(parameters_hash(tied), parameters_hash(example()));
  std::vector<NamedTensor> equal = example();
  equal.push_back({"z.weight", example()[0].tensor});
  EXPECT_NE(parameters_hash(equal), parameters_hash(example()));
}

TEST(ParametersHash, TextHasSixteenDigits) {
  EXPECT_EQ(hash_text(0), "0000000000000000");
  EXPECT_EQ(hash_text(~uint64_t{0}), "ffffffffffffffff");
}

}  // namespace
}  // namespace lockstep
