// SPDX-License-Identifier: Apache-2.0
#include "lockstep/program/private_folder.h"

#include <csignal>
#include <functional>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

TEST(PrivateFolder, IsReadableByItsUserAloneAndRemovedAtTheEnd) {
  const TemporaryDirectory parent;
  std::string path;
  {
    const PrivateFolder folder(parent.path());
    path = folder.path();
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700U);
    write_text(path + "/file", "text");
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(PrivateFolder, OfAKilledProcessIsRemovedByTheNextOne) {
  const TemporaryDirectory parent;
  const pid_t child = ::fork();
  if (child == 0) {
    const PrivateFolder folder(parent.path());
    write_text(folder.path() + "/file", "text");
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_FALSE(fs::is_empty(parent.path()));
  const PrivateFolder next(parent.path());
  EXPECT_EQ(std::distance(fs::directory_iterator(parent.path()), fs::directory_iterator()), 1);
}

TEST(PrivateFolder, WhatItDidNotMakeOrIsInUseStays) {
  const TemporaryDirectory parent;
  const PrivateFolder used(parent.path());
  fs::create_directory(parent / "lockrun-notes");
  fs::create_directory(parent / "lockrun-other");
  write_text(parent / "lockrun-other/lock", "another machine's id");
  write_text(parent / "lockrun-file", "text");
  fs::create_directory_symlink(used.path(), parent / "lockrun-link");
  PrivateFolder::remove_abandoned(parent.path());
  for (const char* name : {"lockrun-notes", "lockrun-other/lock", "lockrun-file", "lockrun-link"})
    EXPECT_TRUE(fs::exists(parent / name)) << name;
  EXPECT_TRUE(fs::exists(used.path()));
}

}  // namespace
}  // namespace lockstep
