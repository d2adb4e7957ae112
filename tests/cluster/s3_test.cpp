// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <filesystem>
#include <gtest/gtest.h>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/file.h"
#include "lockstep/language/download.h"
#include "lockstep/snapshot/snapshot_writer.h"
#include "lockstep/snapshot/stored_snapshot.h"
#include "lockstep/store/s3_client.h"
#include "lockstep/tensor/create.h"
#include "tests/cluster/s3_fixture.h"
#include "tests/support/config_support.h"
#include "tests/support/held_tensors.h"
#include "tests/support/load_snapshot.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

void put(ObjectStore& store, const std::string& key, const std::string& text) { store.put_text(key, text); }

/// Returns pseudo-random bytes, so that all parts differ.
std::string some_bytes(size_t count) {
  std::string bytes(count, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

Snapshot example(int64_t step) {
  return {.step = step,
          .optimizer_steps = step,
          .is_finished = false,
          .best_validation_loss = {},
          .configuration = "[train]\nsteps = 10\n",
          .artifacts = {},
          .matmul_plans = {}};
}

void save(SnapshotStore& store, const Snapshot& snapshot,
          SnapshotStore::Kind kind = SnapshotStore::Kind::step) {
  HeldTensors tensors({{"a", {64, 32}}}, {"exp_avg"});
  tensors.count(0, static_cast<double>(snapshot.step));
  save_snapshot(store, snapshot, tensors, kind);
}

TEST_F(S3, HoldsObjectsUnderAnyKey) {
  const auto store = open_store(address("some/prefix/"));
  const std::vector<std::string> keys = {"a b/c+d=e&f.txt", "plain", "\u00fcmlaut/~%41*'()!:@$,;?#"};
  for (const std::string& key : keys) put(*store, key, "contents of " + key);
  put(*store, "empty", "");
  for (const std::string& key : keys) {
    EXPECT_EQ(store->get(key), "contents of " + key);
    EXPECT_TRUE(store->exists(key)) << key;
  }
  EXPECT_EQ(store->get("empty"), "");
  EXPECT_EQ(store->get("missing"), std::nullopt);
  EXPECT_FALSE(store->exists("missing"));
  EXPECT_EQ(store->list(""), (std::vector<std::string>{keys[0], "empty", "plain", keys[2]}));
  EXPECT_EQ(store->list("a b/"), std::vector<std::string>{keys[0]});
  const TemporaryDirectory folder;
  NewFile file(folder / "text");
  const auto version = download(address("some/prefix/plain"), file);
  EXPECT_EQ(read_text(file.path_now()), "contents of plain");
  EXPECT_EQ(download(address("some/prefix/plain"), file, "", version.value()), std::nullopt);
  put(*store, "plain", "changed");
  EXPECT_NE(download(address("some/prefix/plain"), file, "", version.value()), std::nullopt);
  EXPECT_EQ(read_text(file.path_now()), "changed");
  download(address("some/prefix/empty"), file);
  EXPECT_EQ(read_text(file.path_now()), "");
  expect_contains(user_error([&] { download(address("nothing"), file); }), {"s3://training/nothing", "404"});
  for (const std::string& key : keys) store->remove(key);
  store->remove("missing");
  EXPECT_EQ(store->list(""), std::vector<std::string>{"empty"});
}

TEST_F(S3, SendsLargeObjectsInParts) {
  ::setenv("LOCKSTEP_S3_PART_MIB", "5", 1);
  const auto store = open_store(address("large"));
  const std::string bytes = some_bytes((size_t{12} << 20) + 3);
  // The pieces end at other places than the parts of the upload.
  const auto whole = std::as_bytes(std::span(bytes));
  const std::array pieces = {whole.first(1000), whole.subspan(1000, 0), whole.subspan(1000, 7 << 20),
                             whole.subspan(1000 + (7 << 20))};
  store->put("object", pieces);
  EXPECT_TRUE(store->get("object") == bytes);
  EXPECT_TRUE(store->get("object", 5 << 20, 1000) == bytes.substr(5 << 20, 1000));
  EXPECT_TRUE(store->get("object", std::ssize(bytes) - 2, 1000) == bytes.substr(bytes.size() - 2));
  EXPECT_EQ(store->get("object", std::ssize(bytes), 1000), "");
  EXPECT_EQ(store->get("nothing", 0, 1000), std::nullopt);
  EXPECT_EQ(store->list(""), std::vector<std::string>{"object"});
}

TEST_F(S3, ListsMoreThanAPage) {
  const auto store = open_store(address("many"));
  std::vector<std::string> keys;
  for (int i = 10'000; i < 11'005; ++i) keys.push_back(std::to_string(i));
  for (const std::string& key : keys) put(*store, key, "");
  EXPECT_EQ(store->list(""), keys);
}

TEST_F(S3, RefusalsSayWhatWasTriedAndNoSecret) {
  const std::string secret = server_->secret_key("writer");
  ::setenv("AWS_SECRET_ACCESS_KEY", "not-the-right-secret", 1);
  const std::string wrong = user_error([&] { open_store(address("a"))->get("b"); });
  expect_contains(wrong, {"s3://training/a/b", "403 SignatureDoesNotMatch", "bucket training", "key a/b",
                          "us-east-1", "AWS_ACCESS_KEY_ID", "s3:GetObject"});
  EXPECT_EQ(wrong.find("not-the-right-secret"), std::string::npos);
  ::setenv("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN", 1);
  expect_contains(user_error([&] { open_store(address("a"))->list(""); }), {"403 InvalidAccessKeyId"});
  use(server_->plain(), "reader");
  const std::string denied = user_error([&] { put(*open_store(address("a")), "b", "text"); });
  expect_contains(denied, {"s3://training/a/b", "403 AccessDenied", "s3:PutObject"});
  EXPECT_EQ(denied.find(server_->secret_key("reader")), std::string::npos);
  use(server_->plain(), "writer");
  expect_contains(user_error([] { open_store("s3://no-such-bucket/a")->list(""); }),
                  {"s3://no-such-bucket", "404 NoSuchBucket", "create the bucket"});
  EXPECT_EQ(secret.size(), 40u);
}

TEST_F(S3, AServerThatIsNotThereEndsInAnError) {
  ::setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1", 1);
  S3Options options = S3Options::from_environment();
  options.retries = {.attempts = 3, .first_delay_seconds = 0.01};
  const auto store = open_s3({.bucket = "training", .key = "a"}, options);
  try {
    store->get("b");
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    FAIL() << "an outage is not the user's fault: " << error.what();
  } catch (const Error& error) {
    expect_contains(error.what(), {"s3://training/a/b", "3 attempts"});
  }
}

TEST_F(S3, TrustsNoUnknownCertificate) {
  use(server_->tls(), "writer");
  expect_contains(user_error([&] { open_store(address("a"))->get("b"); }),
                  {"s3://training/a/b", "certificate"});
  ::setenv("AWS_CA_BUNDLE", certificate_.c_str(), 1);
  put(*open_store(address("a")), "b", "text");
  EXPECT_EQ(open_store(address("a"))->get("b"), "text");
}

TEST_F(S3, ARedirectNeverLeavesTls) {
  const auto redirected = [&](const std::string& from, const std::string& to) {
    return HttpClient().perform({.url = from + "/proxy/redirect?" + to + "/proxy/counts",
                                 .ca_bundle = certificate_,
                                 .may_redirect = true});
  };
  EXPECT_THROW(redirected(server_->tls(), server_->plain()), UserError);
  EXPECT_EQ(redirected(server_->tls(), server_->tls()).status, 200);
  EXPECT_EQ(redirected(server_->plain(), server_->plain()).status, 200);
}

TEST_F(S3, ASnapshotIsThereOnceItsStateIs) {
  SnapshotStore snapshots(address("run"), 2);
  EXPECT_EQ(snapshots.names(), std::vector<std::string>{});
  EXPECT_FALSE(snapshots.newest([](const std::string& report) { ADD_FAILURE() << report; }).has_value());
  for (int64_t step : {1, 2, 30}) save(snapshots, example(step));
  save(snapshots, example(1), SnapshotStore::Kind::best);
  save(snapshots, example(2), SnapshotStore::Kind::best);
  const auto store = open_store(address("run"));
  EXPECT_EQ(store->list("best").size(), 3u);
  EXPECT_EQ(store->list("step-").size(), 6u);
  EXPECT_EQ(load_snapshot(address("run")).step, 2) << "the best one";
  EXPECT_EQ(load_snapshot(address("run/step-00000030")).step, 30);
  // The writer was killed before the last file. The files are no snapshot and are not reported as damaged.
  put(*store, "step-00000040/model.safetensors", "unfinished");
  auto newest = snapshots.newest([](const std::string& report) { ADD_FAILURE() << report; });
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->state().step, 30);
  const std::string file = "step-00000030/model.safetensors", whole = *store->get(file);
  std::string damaged = whole;
  damaged.back() ^= 1;
  put(*store, file, damaged);
  // newest() downloads no tensors. Damage is found when they are read.
  newest = snapshots.newest([](const std::string& report) { ADD_FAILURE() << report; });
  ASSERT_TRUE(newest.has_value());
  expect_contains(user_error([&] { newest->verify(); }), {address("run/" + file), "damaged"});
  for (const std::string problem : {"damaged", "missing"}) {
    problem == "damaged" ? put(*store, file, whole + "!") : store->remove(file);
    std::vector<std::string> reports;
    newest = snapshots.newest([&](const std::string& report) { reports.push_back(report); });
    ASSERT_TRUE(newest.has_value());
    EXPECT_EQ(newest->state().step, 2);
    ASSERT_EQ(reports.size(), 1u);
    expect_contains(reports[0], {address("run/" + file), problem});
  }
  save(snapshots, example(41));
  EXPECT_EQ(store->list("step-00000040"), std::vector<std::string>{})
      << "files of a killed writer must be removed";
}

TEST_F(S3, DeletesNothingThatItDidNotWrite) {
  const auto store = open_store(address("shared"));
  const std::vector<std::string> foreign = {"best-models-2025/model.safetensors",
                                            "best-9/state.json",
                                            "best/model.safetensors",
                                            "step-00000001/notes.txt",
                                            "step-by-step/chapter1.txt",
                                            "step-00000007/mine.txt",
                                            "step-000000007/state.json",
                                            "write-test"};
  for (const std::string& key : foreign) put(*store, key, "theirs");
  put(*store, "step-00000004/model.safetensors", "of a killed writer");
  SnapshotStore snapshots(address("shared"), 1);
  snapshots.try_to_write();
  for (int64_t step : {1, 2}) {
    save(snapshots, example(step));
    save(snapshots, example(step), SnapshotStore::Kind::best);
  }
  EXPECT_EQ(snapshots.names(), (std::vector<std::string>{"step-00000002", "best-00000002"}));
  for (const std::string& key : foreign) EXPECT_EQ(store->get(key), "theirs") << key;
  EXPECT_EQ(store->list("").size(), foreign.size() + 6);
}

TEST_F(S3, RanksWriteTheirPartsOfOneObjectAndReadWhatTheyHold) {
  ::setenv("LOCKSTEP_S3_PART_MIB", "5", 1);
  const std::vector<std::pair<std::string, Shape>> shapes = {{"wide", {1500, 1000}}, {"bias", {7}}};
  std::vector<std::string> expected;
  for (const int ranks : {1, 3}) {
    const std::string path = address(concat("ranks-", ranks));
    std::vector<int64_t> copied(static_cast<size_t>(ranks));
    run_ranks(ranks, [&](Communicator& communicator) {
      const World world(communicator.shared_from_this());
      HeldTensors tensors(shapes, {"exp_avg"}, ranks, HeldTensors::everything, HeldTensors::owned_ranges);
      tensors.count(world.rank(), 1.0);
      EXPECT_TRUE(is_shared_by_all(world, path));
      SnapshotWriter writer(world, tensors, {.path = path, .keep = 2});
      writer.save(example(7), {.step = true, .best = true}, 60.0);
      EXPECT_EQ(writer.finish(), 7);
      copied[static_cast<size_t>(world.rank())] = tensors.elements_got();

      HeldTensors read(shapes, {"exp_avg"}, ranks, HeldTensors::owned_ranges, HeldTensors::owned_ranges);
      const StoredSnapshot found = find_snapshot(path);
      restore(world.is_first() ? found : StoredSnapshot(found.text(), open_store(path), found.group()), world,
              read);
      for (const auto& [buffer, range] : read.ranges_set())
        for (int64_t i = range.begin; i < range.end; i += 997)
          EXPECT_EQ(read.at(buffer, i), HeldTensors::number(1.0, buffer, i));
    });
    const auto store = open_store(path);
    std::vector<std::string> contents;
    for (const std::string& key : store->list("")) contents.push_back(key + " " + *store->get(key));
    EXPECT_EQ(contents.size(), 6u);
    if (ranks == 1) expected = contents;
    EXPECT_TRUE(contents == expected) << "objects depend on the number of ranks";
    for (const int64_t elements : copied) EXPECT_GT(elements, 0) << "a rank had nothing to write";
  }
}

TEST_F(S3, SurvivesAFifthOfItsRequestsFailing) {
  use(server_->faulty(), "writer");
  ::setenv("LOCKSTEP_S3_PART_MIB", "5", 1);
  const auto store = open_store(address("faulty"));
  const std::string large = some_bytes(size_t{21} << 20);
  put(*store, "large", large);
  EXPECT_TRUE(store->get("large") == large);
  for (int i = 0; i < 20; ++i)
    put(*store, concat("small/", 10 + i), some_bytes(1000 + static_cast<size_t>(i)));
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(store->get(concat("small/", 10 + i)) == some_bytes(1000 + static_cast<size_t>(i)));
  EXPECT_EQ(store->list("small/").size(), 20u);
  EXPECT_GE(faults(), 5);
}

}  // namespace
}  // namespace lockstep
