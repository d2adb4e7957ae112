// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <filesystem>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/store/object_store.h"
#include "tests/store/put_group.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

void put(ObjectStore& store, const std::string& key, const std::string& text) {
  const std::array pieces = {bytes_of(text)};
  store.put(key, pieces);
}

TEST(FolderStore, HoldsObjects) {
  const TemporaryDirectory directory;
  const auto store = open_store("file://" + (directory / "store"));
  EXPECT_EQ(store->list(""), std::vector<std::string>{});
  EXPECT_FALSE(fs::exists(directory / "store")) << "opening must not create the folder";
  const std::string hello = "hello ", world = "world";
  const std::array pieces = {bytes_of(hello), bytes_of(world)};
  store->put("a/b.txt", pieces);
  put(*store, "a/c.txt", std::string("\0\xff", 2));
  put(*store, "top", "");
  fs::create_directory(directory / "store/empty");
  EXPECT_EQ(store->get("a/b.txt"), "hello world");
  EXPECT_EQ(store->get("a/c.txt"), std::string("\0\xff", 2));
  EXPECT_EQ(store->get("missing"), std::nullopt);
  EXPECT_THROW(store->get("a"), UserError);
  EXPECT_TRUE(store->exists("a/b.txt"));
  EXPECT_FALSE(store->exists("a"));
  EXPECT_EQ(store->list(""), (std::vector<std::string>{"a/b.txt", "a/c.txt", "empty/", "top"}));
  EXPECT_EQ(store->list("a/b"), std::vector<std::string>{"a/b.txt"});
  store->remove("a/b.txt");
  store->remove("a/b.txt");
  EXPECT_FALSE(store->exists("a/b.txt"));
  EXPECT_EQ(store->name_of("a"), directory / "store/a");
}

// Each of these links leads to the folder with all of them. Following them takes ten to the fortieth steps.
TEST(FolderStore, LinksToFoldersAreNotFollowed) {
  const TemporaryDirectory directory;
  const auto store = open_store(directory.path());
  put(*store, "a/file", "text");
  for (int link = 0; link < 10; ++link)
    fs::create_directory_symlink("..", directory / concat("a/link", link));
  fs::create_symlink("file", directory / "a/name");
  const std::vector<std::string> keys = store->list("");
  EXPECT_EQ(keys.size(), 12U);
  EXPECT_EQ(store->get("a/name"), "text");
}

TEST(FolderStore, ReplacesGroupsAtOnce) {
  const TemporaryDirectory directory;
  const auto store = open_store(directory.path());
  const std::string text = "old", other = "new";
  put_group(*store, "g", std::array{Object{"one", {bytes_of(text)}}, Object{"two", {bytes_of(text)}}});
  put_group(*store, "g", std::array{Object{"two", {bytes_of(other), bytes_of(other)}}});
  EXPECT_EQ(store->list(""), std::vector<std::string>{"g/two"});
  EXPECT_EQ(store->get("g/two"), "newnew");
  EXPECT_THROW(put_group(*store, "g", std::array{Object{"no/such/folder", {bytes_of(text)}}}), Error);
  EXPECT_EQ(store->list(""), std::vector<std::string>{"g/two"}) << "only the old group must be there";
  store->remove_group("g", "two");
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

TEST(FolderStore, SeveralWriteAGroupTogetherAndItAppearsAtOnce) {
  const TemporaryDirectory directory;
  FolderStore first(directory.path()), second(directory.path());
  const std::string ab = "ab", cd = "cd", last = "last";
  const std::string begun = first.begin_group("g", std::array{PlannedObject{"one", 4}}, "last");
  second.write_parts("g", begun, "one", std::array{ObjectPart{2, bytes_of(cd)}});
  first.write_parts("g", begun, "one",
                    std::array{ObjectPart{1, bytes_of(ab).subspan(1)}, ObjectPart{0, bytes_of(ab).first(1)}});
  EXPECT_FALSE(fs::exists(directory / "g"));
  first.end_group("g", begun, {}, {"last", {bytes_of(last)}});
  EXPECT_EQ(first.get("g/one"), "abcd");
  EXPECT_EQ(first.get("g/last"), "last");
  const std::string again = first.begin_group("g", std::array{PlannedObject{"one", 4}}, "last");
  EXPECT_THROW(second.write_parts("g", again, "two", std::array{ObjectPart{0, bytes_of(ab)}}), Error);
  first.drop_group("g", again);
  EXPECT_EQ(first.list(""), (std::vector<std::string>{"g/last", "g/one"}))
      << "only the old group must be there";
}

TEST(FolderStore, AFailureNamesThePath) {
  const TemporaryDirectory directory;
  write_text(directory / "file", "in the way");
  const auto store = open_store(directory / "file");
  try {
    put(*store, "a", "text");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(directory / "file"), std::string::npos) << error.what();
  }
}

TEST(OpenStore, RefusesOtherAddresses) {
  for (const char* address : {"gs://bucket/a", "http://host/a", "file://host/a", "s3://"})
    EXPECT_THROW(open_store(address), UserError) << address;
  EXPECT_EQ(local_path("file:///a/b"), "/a/b");
  EXPECT_EQ(local_path("a/b"), "a/b");
  EXPECT_EQ(local_path("s3://bucket/a"), std::nullopt);
}

}  // namespace
}  // namespace lockstep
