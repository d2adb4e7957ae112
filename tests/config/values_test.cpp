// SPDX-License-Identifier: Apache-2.0
// Values of keys and options as people write them.
#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/program/command_line.h"
#include "support/config_support.h"

namespace lockstep {
namespace {

TEST(CommandLine, ATildeInAPathMeansHome) {
  const auto path_of = [](const std::string& word) {
    std::string path;
    std::optional<std::string> other;
    CommandLine line;
    line.add("--to", path, "", {.is_path = true});
    line.add("--from", other, "", {.is_path = true});
    const std::string both[] = {"--to=" + word, "--from=" + word};
    const std::vector<const char*> words = {"program", both[0].c_str(), both[1].c_str()};
    line.parse(3, words.data());
    EXPECT_EQ(path, other);
    return path;
  };
  const std::string home = environment("HOME");
  ::setenv("HOME", "/home/some one", 1);
  EXPECT_EQ(path_of("~/a~b"), "/home/some one/a~b");
  EXPECT_EQ(path_of("~"), "/home/some one");
  EXPECT_EQ(path_of("./~/a"), "./~/a");
  EXPECT_EQ(path_of("s3://bucket/~x"), "s3://bucket/~x");
  expect_contains(user_error([&] { path_of("~other/a"); }), {"--to", "~other/a", "./~other/a"});
  ::setenv("HOME", home.c_str(), 1);
}

TEST(Arguments, ATildeInThePathOfAnyKeyMeansHome) {
  const std::string home = environment("HOME");
  ::setenv("HOME", "/home/a", 1);
  const Settings settings = load_words({"train.steps=1", "log.dir=~/runs/x", "--data.dataset", "~/text.txt",
                                        "data.tokenizer=~", "model.from=~/m", "--snapshot.path=~/s"});
  EXPECT_EQ(settings["log.dir"], "/home/a/runs/x");
  EXPECT_EQ(settings["data.dataset"], "/home/a/text.txt");
  EXPECT_EQ(settings["data.tokenizer"], "/home/a");
  EXPECT_EQ(settings["model.from"], "/home/a/m");
  EXPECT_EQ(settings["snapshot.path"], "/home/a/s");
  const char* words[] = {"program", "--config=~/x.ini"};
  EXPECT_EQ(split_arguments(2, words).config_file, "/home/a/x.ini");
  EXPECT_EQ(earlier("[log]\ndir = ~/from a file\n", "x.ini").log.dir, "/home/a/from a file");
  ::unsetenv("HOME");
  expect_contains(user_error([] { load({"train.steps=1", "log.dir=~/x"}); }), {"log.dir", "HOME"});
  ::setenv("HOME", home.c_str(), 1);
  expect_contains(user_error([] {
                    load({"train.steps=1", "data.dataset=~bob/x"});
                  }),
                  {"data.dataset", "./~bob/x"});
}

TEST(Settings, ARunFromBeforeAKeyHasTheValueThatItHadThen) {
  EXPECT_EQ(earlier("[data]\nblock_size = 8\n", "x.ini").text.loss_mean, LossMean::micro_batch);
  EXPECT_EQ(earlier("[data]\nloss_mean = tokens\n", "x.ini").text.loss_mean, LossMean::tokens);
  const Settings there = settings_of_earlier_run(job_keys(), "[train]\nsteps = 9\n", "x.ini");
  const Settings here = load_words({"train.steps=9", "train.device=auto"});
  EXPECT_EQ(here["data.loss_mean"], "tokens");
  const SettingLayer inherited = inherited_values(here, there);
  EXPECT_EQ(std::ranges::count(inherited, "data.loss_mean", &Setting::key), 1);
  EXPECT_EQ(std::ranges::find(inherited, "data.loss_mean", &Setting::key)->value, "micro_batch");
}

TEST(Arguments, NumbersMayHaveAPlus) {
  EXPECT_EQ(load({"train.steps=+20", "train.learning_rate=+2.5e-4"}).schedule.learning_rate, 2.5e-4);
  for (const char* word :
       {"train.learning_rate=+-1", "train.learning_rate=++1", "train.steps=+", "train.steps=+ 1"})
    EXPECT_THROW(load({"train.steps=1", word}), UserError) << word;
}

TEST(Config, TheModelIsKeptInTheRunsFolderUnlessSomebodySaysOtherwise) {
  EXPECT_EQ(load({"train.steps=1", "log.dir=a/b"}).snapshot_place(), "a/b/snapshots");
  EXPECT_EQ(load({"train.steps=1", "log.dir=a/b", "snapshot.path=none"}).snapshot_place(), "");
  EXPECT_EQ(load({"train.steps=1", "snapshot.path="}).snapshot_place(), "");
  EXPECT_EQ(load({"train.steps=1", "snapshot.path=./none"}).snapshot_place(), "./none");
  const Job none = load({"train.steps=1", "snapshot.path=none"});
  EXPECT_EQ(load_file(to_ini(none)).snapshot_place(), "") << "none must stay none";
  // A run that uses the configuration of another run must not use its snapshots.
  const std::string resolved = to_ini(load({"train.steps=1", "log.dir=a"}));
  EXPECT_NE(resolved.find("path = auto"), std::string::npos) << resolved;
  EXPECT_EQ(load({"train.steps=1", "--fresh"}).snapshots.resume, Resume::never);
}

}  // namespace
}  // namespace lockstep
