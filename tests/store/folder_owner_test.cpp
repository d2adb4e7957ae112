// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/store/object_store.h"
#include "lockstep/store/owner.h"
#include "tests/store/put_group.h"
#include "tests/store/start_of.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/user_error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class OwnedFolder : public testing::Test {
 protected:
  std::unique_ptr<FolderOwner> take(const std::string& run, int64_t generation = 0, double patience = 0.2) {
    return std::make_unique<FolderOwner>("log.dir", folder_, start_of(run, generation), patience);
  }

  /// Writes the file of an owner on another host that was killed or cannot be reached.
  void write_foreign_owner() const {
    fs::create_directories(folder_);
    write_text(
        folder_ + "/.owner",
        R"({"run":"a","generation":0,"host":"far","boot_id":"another","process":42,"since":"yesterday"})");
  }

  TemporaryDirectory directory_;
  std::string folder_ = directory_ / "run";
};

TEST_F(OwnedFolder, AnotherRunIsRefusedWithTheOwnersHostProcessAndStart) {
  const auto owner = take("a");
  for (const char* run : {"b", "a"})
    expect_contains(
        user_error([&] { take(run); }),
        {"log.dir", folder_, concat("process ", ::getpid(), " on ", host_name()), "since 20", "UTC"});
  owner->check();
}

TEST_F(OwnedFolder, AnOwnersFileThatIsNoFileIsRefused) {
  fs::create_directories(folder_);
  fs::create_symlink(directory_ / "absent", folder_ + "/.owner");
  expect_contains(user_error([&] { take("a"); }), {"log.dir", folder_ + "/.owner", "symbolic link"});
  EXPECT_FALSE(fs::exists(directory_ / "absent")) << "a link must not be followed";
  fs::remove(folder_ + "/.owner");
  ASSERT_EQ(::mkfifo((folder_ + "/.owner").c_str(), 0600), 0);
  expect_contains(user_error([&] { take("a"); }), {folder_ + "/.owner", "not a regular file"});
}

TEST_F(OwnedFolder, IsFreeOnceItsOwnerHasLeftOrWasKilled) {
  take("a").reset();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto owner = take("b");
    write_text(directory_ / "taken", "");
    ::pause();
  }
  ASSERT_TRUE(eventually([&] { return fs::exists(directory_ / "taken"); }));
  EXPECT_THROW(take("c"), UserError);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  take("c")->check();
}

TEST_F(OwnedFolder, ALaterStartTakesItFromOneThatLingersWhichMayThenMoveNothing) {
  const auto lingering = take("a", 3);
  FolderStore store(folder_ + "/snapshots");
  store.set_guard([&] { lingering->check(); });
  const std::string text = "contents";
  const Object object{.key = "file", .pieces = {std::as_bytes(std::span(text))}};
  put_group(store, "mine", std::span(&object, 1));
  EXPECT_THROW(take("a", 2), UserError) << "an earlier start took it from a later one";
  const auto later = take("a", 4);
  EXPECT_THROW(lingering->check(), Error);
  EXPECT_THROW(put_group(store, "late", std::span(&object, 1)), Error);
  EXPECT_THROW(store.remove_group("mine", "file"), Error);
  EXPECT_THROW(store.remove("mine/file"), Error);
  EXPECT_EQ(store.list(""), std::vector<std::string>{"mine/file"});
  EXPECT_TRUE(eventually([&] {
    try {
      lingering->check_recently();
    } catch (const Error&) {
      return true;
    }
    return false;
  })) << "an owner that does not write must notice, too";
  later->check();
}

TEST_F(OwnedFolder, OfAnotherHostItIsFreeOnlyIfNobodyTouchesIt) {
  write_foreign_owner();
  take("b")->check();
  write_foreign_owner();
  std::atomic<bool> is_over = false;
  std::thread far_owner([&] {
    while (!is_over) {
      fs::last_write_time(folder_ + "/.owner", fs::file_time_type::clock::now());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  expect_contains(user_error([&] { take("b", 0, 60.0); }), {"process 42 on far", "since yesterday"});
  take("a", 1)->check();  // a later start of the same run does not wait
  is_over = true;
  far_owner.join();
}

TEST_F(OwnedFolder, AnOwnerWithValuesOfAnotherKindIsUnknown) {
  const auto owner = take("a");
  for (const char* text :
       {R"({"run":"a","generation":1e30,"host":"h","boot_id":"b","process":1,"since":"s"})",
        R"({"run":"a","generation":0,"host":"h","boot_id":"b","process":4294967297,"since":"s"})",
        R"({"run":"a","generation":0.5,"host":"h","boot_id":"b","process":1,"since":"s"})", "[[[["}) {
    write_text(folder_ + "/.owner", text);
    expect_contains(user_error([&] { take("b"); }), {"on an unknown host, since an unknown time"});
  }
}

TEST_F(OwnedFolder, NoticesThatItWasMovedAway) {
  const auto owner = take("a");
  fs::rename(folder_, directory_ / "moved");
  EXPECT_THROW(owner->check(), Error);
}

TEST_F(OwnedFolder, ThatCannotBeWrittenIsNamed) {
  for (const char* folder : {"/dev/null/run", "/proc/run"})
    expect_contains(user_error([&] { FolderOwner("snapshot.path", folder); }), {"snapshot.path", folder});
}

TEST(Owner, KnowsItsRunFromLockrunOrSlurmOrIsItsOwn) {
  const Owner alone = Owner::this_process();
  EXPECT_NE(alone.run, Owner::this_process().run);
  ::setenv("SLURM_JOB_ID", "17", 1);
  ::setenv("SLURM_RESTART_COUNT", "2", 1);
  const Owner job = Owner::this_process();
  ::setenv("LOCKSTEP_RUN_ID", "slurm-17", 1);
  ::setenv("LOCKSTEP_GENERATION", "2000001", 1);
  const Owner restarted = Owner::this_process();
  for (const char* name : {"SLURM_JOB_ID", "SLURM_RESTART_COUNT", "LOCKSTEP_RUN_ID", "LOCKSTEP_GENERATION"})
    ::unsetenv(name);
  EXPECT_EQ(job.run, "slurm-17");
  EXPECT_TRUE(restarted.supersedes(job));
  EXPECT_FALSE(job.supersedes(restarted));
  EXPECT_FALSE(job.supersedes(alone));
}

}  // namespace
}  // namespace lockstep
