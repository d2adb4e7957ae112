// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/error.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/snapshot/snapshot_store.h"
#include "lockstep/snapshot/stored_snapshot.h"
#include "tests/support/config_support.h"
#include "tests/support/held_tensors.h"
#include "tests/support/load_snapshot.h"
#include "tests/support/tiny_run.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__)
constexpr int flips = 1'000;
#else
constexpr int flips = 10'000;
#endif
constexpr int cuts_of_a_file = 100;
const std::vector<std::string> files = {"config.json", "model.safetensors", "optimizer.safetensors",
                                        "tokenizer.json", "state.json"};

/// The snapshots of a small run after steps 4, 8 and 12. The tests damage the newest one.
class DamagedSnapshot : public testing::Test {
 protected:
  void SetUp() override {
    Job job = tiny_config(directory_, 1);
    job.length.steps = 12;
    job.snapshots.path = directory_ / "snapshots";
    job.snapshots.every_steps = 4;
    job.snapshots.keep = 3;
    testing::internal::CaptureStderr();
    run_ranks(1, [&](Communicator& communicator) {
      const World world(communicator.shared_from_this());
      const Job resolved = resolve(job, world);
      const LanguageData data = short_language_data(resolved, 100);
      const auto model = make_model(resolved, data.vocabulary_size);
      train(resolved, world, LanguageTask(resolved, *model, data));
    });
    testing::internal::GetCapturedStderr();
    for (const std::string& file : files) {
      newest_[file] = read_text(path_of("step-00000012", file));
      previous_[file] = read_text(path_of("step-00000008", file));
      ASSERT_FALSE(newest_[file].empty() || previous_[file].empty()) << file;
    }
    std::vector<std::pair<std::string, Shape>> shapes;
    for (const NamedTensor& one : load_snapshot(path_of("step-00000012")).model)
      shapes.emplace_back(one.name, one.tensor.shape());
    tensors_ = std::make_unique<HeldTensors>(shapes, std::vector<std::string>{"exp_avg", "exp_avg_sq"});
  }

  std::string path_of(const std::string& name, const std::string& file = "") const {
    return directory_ / "snapshots" + "/" + name + (file.empty() ? "" : "/" + file);
  }

  /// Returns the step of the newest snapshot that can be loaded, or -1 if none can. Loads as RunFolder does.
  int64_t found() {
    reports_.clear();
    const auto report = [this](const std::string& problem) { reports_.push_back(problem); };
    const SnapshotStore store(directory_ / "snapshots", 3);
    auto newest = store.newest(report);
    while (newest) {
      const int64_t step = newest->state().step;
      try {
        restore(*newest, world_, *tensors_);
        return step;
      } catch (const UserError& problem) {
        report(problem.what());
        newest = store.newest(report, step);
      }
    }
    return -1;
  }

  /// Succeeds if one report names `file` of the damaged snapshot, and the snapshot before it is loaded.
  testing::AssertionResult previous_is_taken(const std::string& file) {
    const int64_t taken = found();
    if (taken == 12) return testing::AssertionFailure() << "the damage went unnoticed";
    if (taken != 8) return testing::AssertionFailure() << "step " << taken << " was found";
    if (reports_.size() != 1 || reports_[0].find(path_of("step-00000012", file)) == std::string::npos)
      return testing::AssertionFailure() << "it was not reported: " << testing::PrintToString(reports_);
    return testing::AssertionSuccess();
  }

  /// Damages the file in place, which is faster than rewriting it.
  void write_byte(const std::string& file, size_t position, char byte) const {
    std::fstream stream(path_of("step-00000012", file), std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(static_cast<std::streamoff>(position));
    stream.put(byte);
    ASSERT_TRUE(stream.good());
  }

  TemporaryDirectory directory_;
  std::map<std::string, std::string> newest_;
  std::map<std::string, std::string> previous_;
  std::vector<std::string> reports_;
  const World world_ = World::alone();
  std::unique_ptr<HeldTensors> tensors_;
};

TEST_F(DamagedSnapshot, FlippedBitsAreNoticed) {
  ASSERT_EQ(found(), 12);
  ASSERT_TRUE(reports_.empty());
  std::mt19937 random(1);
  for (int i = 0; i < flips; ++i) {
    const std::string& file = files[random() % files.size()];
    const size_t position = random() % newest_[file].size();
    const char byte = newest_[file][position];
    const auto bit = random() % 8;
    write_byte(file, position, static_cast<char>(byte ^ (1 << bit)));
    ASSERT_TRUE(previous_is_taken(file)) << "bit " << bit << " of byte " << position << " of " << file;
    write_byte(file, position, byte);
  }
  EXPECT_EQ(found(), 12) << "the file is restored";
}

TEST_F(DamagedSnapshot, CutAndGrownFilesAreNoticed) {
  std::mt19937 random(2);
  for (const std::string& file : files) {
    const std::string whole = newest_[file];
    std::vector<size_t> lengths = {0, 1, 7, 8, 9, whole.size() - 1};
    for (int i = 0; i < cuts_of_a_file; ++i) lengths.push_back(random() % whole.size());
    for (const size_t length : lengths) {
      write_text(path_of("step-00000012", file), whole.substr(0, length));
      ASSERT_TRUE(previous_is_taken(file)) << length << " bytes of " << file;
    }
    for (const std::string& more : {std::string(1, '\0'), std::string("\n"), whole}) {
      write_text(path_of("step-00000012", file), whole + more);
      ASSERT_TRUE(previous_is_taken(file)) << more.size() << " bytes more in " << file;
    }
    write_text(path_of("step-00000012", file), previous_[file]);
    const bool is_another = previous_[file] != whole;  // files for other programs do not differ between steps
    ASSERT_TRUE(!is_another || previous_is_taken(file == "state.json" ? "" : file))
        << file << " of another snapshot";
    write_text(path_of("step-00000012", file), whole);
  }
  EXPECT_EQ(found(), 12);
}

TEST_F(DamagedSnapshot, MissingFilesAreNoticed) {
  for (unsigned missing = 1; missing < 1u << files.size(); ++missing) {
    std::string first;
    for (size_t i = 0; i < files.size(); ++i) {
      if (((missing >> i) & 1) == 0) continue;
      fs::remove(path_of("step-00000012", files[i]));
      if (first.empty() || files[i] == "state.json") first = files[i];  // state.json is read first
    }
    EXPECT_TRUE(previous_is_taken(first)) << "without files " << missing;
    for (const std::string& file : files) write_text(path_of("step-00000012", file), newest_[file]);
  }
  fs::remove(path_of("step-00000012", files[0]));
  fs::create_directory(path_of("step-00000012", files[0]));
  EXPECT_TRUE(previous_is_taken(files[0])) << "a folder instead of a file";
}

TEST_F(DamagedSnapshot, WithNoneLeftNothingIsLoaded) {
  for (const char* name : {"step-00000004", "step-00000008", "step-00000012"})
    write_text(path_of(name, "state.json"), "{}");
  EXPECT_EQ(found(), -1);
  EXPECT_EQ(reports_.size(), 3u);
}

/// A limit that keeps this process from writing files, until the end of the scope.
struct FullDisk {
  explicit FullDisk(rlim_t bytes) : handler(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before);
    ::signal(SIGXFSZ, handler);
  }
  rlimit before{};
  sighandler_t handler;
};

/// A user who is bound by file permissions. If the test runs as root, it runs as user 65534 until the end of
/// the scope.
struct OrdinaryUser {
  OrdinaryUser() {
    if (::geteuid() == 0) is_nobody = ::seteuid(65534) == 0;
  }
  ~OrdinaryUser() {
    if (is_nobody && ::seteuid(0) != 0) ADD_FAILURE() << "cannot become root again";
  }
  bool is_nobody = false;
};

class UnwritableSnapshot : public DamagedSnapshot {
 protected:
  /// Returns the message of the Error that another save throws.
  std::string failure() {
    LoadedSnapshot next = load_snapshot(path_of("step-00000012"));
    next.step = 16;
    for (NamedTensor& one : next.model) one.tensor.set_requires_grad();
    ParameterSpace space(next.model);
    AdamW optimizer(space, {});
    SnapshotStore store(directory_ / "snapshots", 1);
    try {
      save_snapshot(store, next, SpaceTensors(space, &optimizer, 1));
    } catch (const Error& error) {
      return error.what();
    }
    return "(nothing was thrown)";
  }

  void expect_untouched() {
    EXPECT_EQ(found(), 12);
    EXPECT_TRUE(reports_.empty());
    for (const char* name : {"step-00000004", "step-00000008", "step-00000012"})
      EXPECT_TRUE(fs::exists(path_of(name, "state.json"))) << name;
    for (const auto& entry : fs::directory_iterator(directory_ / "snapshots"))
      EXPECT_EQ(entry.path().string().find("step-00000016"), std::string::npos) << entry.path();
  }
};

TEST_F(UnwritableSnapshot, AFullDiskIsSaidAndOlderOnesStay) {
  for (const rlim_t bytes :
       {rlim_t{0}, rlim_t{100}, newest_["model.safetensors"].size() - 1, newest_["model.safetensors"].size(),
        newest_["optimizer.safetensors"].size() - 1}) {
    std::string said;
    {
      const FullDisk full(bytes);
      said = failure();
    }
    expect_contains(said, {"step-00000016", "could not be written", "File too large"});
    expect_untouched();
  }
}

TEST_F(UnwritableSnapshot, AReadOnlyFolderIsSaidAndOlderOnesStay) {
  fs::permissions(directory_.path(), fs::perms(0755));
  fs::permissions(directory_ / "snapshots", fs::perms(0555));
  std::string said;
  {
    const OrdinaryUser nobody;
    said = failure();
  }
  fs::permissions(directory_ / "snapshots", fs::perms(0755));
  expect_contains(said, {"step-00000016", "could not be written", "Permission denied"});
  expect_untouched();
}

}  // namespace
}  // namespace lockstep
