// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/metrics.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/stat.h>

#include "lockstep/core/error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/user_error.h"

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
  EXPECT_TRUE(writer.finish(0xabcdef));
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

/// A full disk: no file of this process grows beyond `bytes` until this object ends.
class FullDisk {
 public:
  explicit FullDisk(size_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

std::string line_of(int64_t step) { return to_json({.step = step, .loss = 1.0f}) + "\n"; }

TEST_F(Metrics, LinesWaitForRoomOnAFullDisk) {
  MetricsWriter writer(path_, 0);
  testing::internal::CaptureStderr();
  {
    // The limit is inside the second line.
    const FullDisk disk(line_of(1).size() * 3 / 2);
    for (int64_t step = 1; step <= 4; ++step) writer.write({.step = step, .loss = 1.0f});
    writer.add_validation_loss(4, 2.5);
    EXPECT_EQ(content(), line_of(1)) << "no line is torn";
  }
  writer.write({.step = 5, .loss = 1.0f});
  const std::string report = testing::internal::GetCapturedStderr();
  EXPECT_EQ(content(), line_of(1) + line_of(2) + line_of(3) +
                           to_json({.step = 4, .loss = 1.0f, .validation_loss = 2.5}) + "\n" + line_of(5));
  const std::string waits = path_ + ": lines wait in memory: ";
  EXPECT_NE(report.find(waits), std::string::npos) << report;
  EXPECT_EQ(report.find(waits), report.rfind(waits)) << "it is logged once: " << report;
  EXPECT_TRUE(report.ends_with(path_ + ": the lines that waited in memory are written\n")) << report;
  EXPECT_TRUE(writer.finish(1));
}

TEST_F(Metrics, LinesThatAreLostAreToldAtTheEnd) {
  testing::internal::CaptureStderr();
  {
    MetricsWriter writer(path_, 0);
    writer.write({.step = 1, .loss = 1.0f});
    const FullDisk disk(line_of(1).size());
    for (int64_t step = 2; step <= 3; ++step) writer.write({.step = step, .loss = 1.0f});
    EXPECT_FALSE(writer.finish(1));
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find(path_ + " lacks its last 3 lines: "),
            std::string::npos);
  testing::internal::CaptureStderr();
  {
    const FullDisk disk(line_of(1).size());
    MetricsWriter writer(path_, 1);
    writer.write({.step = 2, .loss = 1.0f});
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find(path_ + " lacks its last line: "), std::string::npos)
      << "a stopped run tells it too";
  EXPECT_EQ(content(), line_of(1));
  testing::internal::CaptureStderr();
  const MetricsWriter resumed(path_, 3);
  EXPECT_NE(testing::internal::GetCapturedStderr().find(path_ + " lacks the lines of steps 2 to 3"),
            std::string::npos);
}

TEST_F(Metrics, AFileThatIsNoFileOfTheRunIsRefused) {
  fs::create_directories(folder_ / "results");
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const auto refusal = [&] { return user_error([&] { MetricsWriter(path_, 0); }); };
  EXPECT_EQ(read_metrics_end(path_).step, 0);
  expect_contains(refusal(), {path_, "it is not a regular file"});
  fs::remove(path_);
  write_text(folder_ / "theirs", "mine\n");
  fs::create_symlink("../theirs", path_);
  expect_contains(refusal(), {path_, "it is a symbolic link"});
  EXPECT_EQ(read_text(folder_ / "theirs"), "mine\n");
  fs::remove(path_);
  fs::create_symlink("../absent", path_);
  expect_contains(refusal(), {path_, "it is a symbolic link"});
  EXPECT_FALSE(fs::exists(folder_ / "absent"));
}

}  // namespace
}  // namespace lockstep
