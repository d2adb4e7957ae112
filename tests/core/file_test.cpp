// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/file.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <span>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "support/temporary_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

int64_t count_entries(const std::string& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

/// Fails unless the call throws an Error that names the path.
template <class Call>
void expect_error_naming(const std::string& path, Call call) {
  try {
    call();
    FAIL() << "nothing was thrown for " << path;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
  }
}

TEST(File, AFullDiskIsNoMistakeOfTheUser) {
  for (const int error : {ENOSPC, EDQUOT, EIO, EMFILE, ENOMEM, ESTALE}) try {
      require_of_system(false, error, "a/file cannot be written");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const UserError&) {
      ADD_FAILURE() << error << " ends a supervised run for good";
    } catch (const Error&) {
    }
  for (const int error : {EACCES, EROFS, ENOTDIR, EINVAL, ENAMETOOLONG})
    EXPECT_THROW(require_of_system(false, error, "a/file"), UserError) << error;
  require_of_system(true, EACCES, "a/file");
}

TEST(File, ThatIsThereStaysWhereAnAbsentOneIsWritten) {
  const TemporaryDirectory folder;
  const auto write = [&](const std::string& name, std::string_view text) {
    NewFile file(folder / name);
    file.write(0, std::as_bytes(std::span(text)));
    return file.publish_if_absent();
  };
  EXPECT_TRUE(write("file", "first"));
  EXPECT_FALSE(write("file", "second"));
  EXPECT_EQ(read_text(folder / "file"), "first");
  EXPECT_EQ(count_entries(folder.path()), 1);
  expect_error_naming(folder / "none/file", [&] { write("none/file", "text"); });
}

/// Makes a file from two pieces. Returns whether its folder has only `names` entries until it is complete.
bool appears_when_complete(const std::string& folder, int64_t names) {
  const std::string path = folder + "/file";
  bool is_hidden = true;
  {
    NewFile file(path);
    const std::string_view text = "a text";
    file.write(2, std::as_bytes(std::span(text.substr(2))));
    file.write(0, std::as_bytes(std::span(text.substr(0, 2))));
    is_hidden = count_entries(folder) == names && !fs::exists(path) && read_text(file.path_now()) == text;
    file.publish();
  }
  return is_hidden && read_text(path) == "a text" && count_entries(folder) == 1;
}

TEST(File, AppearsWhenItIsComplete) {
  const TemporaryDirectory folder;
  const int file = ::open(folder.path().c_str(), O_RDWR | O_TMPFILE, 0600);
  ::close(file);
  EXPECT_TRUE(appears_when_complete(folder.path(), file >= 0 ? 0 : 1));
  {
    NewFile other(folder / "other");
    other.write(0, {});
  }
  EXPECT_EQ(count_entries(folder.path()), 1) << "a file that is not published does not stay";
}

// A process without /proc cannot name a nameless file.
TEST(File, HasATemporaryNameWhereItNeedsOne) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can change its root";
  const TemporaryDirectory folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_apart = ::chroot(folder.path().c_str()) == 0 && ::chdir("/") == 0;
    ::_exit(!is_apart ? 2 : appears_when_complete(".", 1) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "this container cannot change its root";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_text(folder / "file"), "a text");
}

TEST(File, HoldsExactlyTheBytes) {
  const TemporaryDirectory folder;
  const std::string bytes(" \n\0a\xFF\r\n", 7);
  write_file(folder / "file", bytes);
  EXPECT_EQ(read_file(folder / "file"), bytes);
  write_file(folder / "file", "");
  EXPECT_EQ(read_file(folder / "file"), "");
  const std::string large(3 << 20, 'x');
  write_file(folder / "file", large);
  EXPECT_EQ(read_file(folder / "file"), large);
  EXPECT_EQ(count_entries(folder.path()), 1);
}

// A process that has the old file open still reads the old content. The file is replaced, not overwritten.
TEST(File, IsReplacedAsAWhole) {
  const TemporaryDirectory folder;
  write_file(folder / "file", "the old content");
  std::ifstream reader(folder / "file");
  write_file(folder / "file", "new");
  std::string seen;
  std::getline(reader, seen);
  EXPECT_EQ(seen, "the old content");
  EXPECT_EQ(read_text(folder / "file"), "new");
}

TEST(File, AFailureNamesThePathAndLeavesNothingBehind) {
  const TemporaryDirectory folder;
  const std::string missing = folder / "no_such_folder/file";
  expect_error_naming(missing, [&] { write_file(missing, "x"); });
  fs::create_directories(folder / "occupied/by_a_folder");
  const std::string occupied = folder / "occupied";
  expect_error_naming(occupied, [&] { write_file(occupied, "x"); });
  EXPECT_EQ(count_entries(folder.path()), 1);
}

TEST(File, WhatCannotBeReadHasNoContents) {
  const TemporaryDirectory folder;
  EXPECT_EQ(read_file(folder / "none"), std::nullopt);
  EXPECT_EQ(read_file(folder.path()), std::nullopt) << "a folder opens, but reading it fails";
  EXPECT_EQ(read_file("/proc/self/mem"), std::nullopt) << "a file whose first byte cannot be read";
}

TEST(File, AReadOnlyFolderIsNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "nothing is read-only for root";
  const TemporaryDirectory folder;
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  expect_error_naming(folder / "file", [&] { write_file(folder / "file", "x"); });
  fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST(File, ACacheOfAnotherUserIsNoneInsteadOfAnError) {
  const char* set = std::getenv("XDG_CACHE_HOME");
  const std::string before = set != nullptr ? set : "";
  ::setenv("XDG_CACHE_HOME", "~somebody/cache", 1);
  EXPECT_EQ(cache_folder(), "");
  ::setenv("XDG_CACHE_HOME", "/a/cache", 1);
  EXPECT_EQ(cache_folder(), "/a/cache/lockstep");
  set != nullptr ? ::setenv("XDG_CACHE_HOME", before.c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
}

TEST(File, DirectoriesAreSynced) {
  const TemporaryDirectory folder;
  EXPECT_NO_THROW(sync_directory(folder.path()));
  const std::string missing = folder / "no_such_folder";
  expect_error_naming(missing, [&] { sync_directory(missing); });
}

}  // namespace
}  // namespace lockstep
