// SPDX-License-Identifier: Apache-2.0

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sstream>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/config/settings.h"
#include "lockstep/models/family.h"
#include "support/config_support.h"
#include "support/temporary_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> values_of(const Job& job) {
  const Settings settings = job_keys().settings_of(job);
  std::map<std::string, std::string> values;
  for (const Key& key : job_keys().keys()) values[key.name] = settings[key.name];
  return values;
}

class ConfigFile : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  Job load_text(const std::string& text, std::vector<const char*> words = {}) const {
    const std::string path = write("run.ini", text);
    words.insert(words.end(), {"--config", path.c_str()});
    return load(words);
  }

  TemporaryDirectory temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST(Arguments, OverridesComeInThreeFormsAndAnyOrder) {
  const Job job =
      load({"train.steps=200", "--model.n_layer=3", "--model.n_head", "2", "--train.min_lr", "1e-5"});
  EXPECT_EQ(job.length.steps, 200);
  EXPECT_EQ(job.model.n_layer, 3);
  EXPECT_EQ(job.model.n_head, 2);
  EXPECT_EQ(job.schedule.min_lr, 1e-5);
}

TEST(Arguments, TheLastOverrideWins) {
  EXPECT_EQ(load({"train.steps=200", "train.steps=300"}).length.steps, 300);
}

TEST(Arguments, WhatOnlyTheProgramKnowsIsLeftInOrder) {
  const std::vector<const char*> words = {"train_mlp", "50", "train.seed=3", "10", "--batch_size", "32"};
  Arguments arguments = split_arguments(static_cast<int>(words.size()), words.data());
  EXPECT_EQ(arguments.other, (std::vector<std::string>{"50", "10", "--batch_size", "32"}));
  arguments.other.clear();
  arguments.overrides.push_back({"train.epochs", "50"});
  const Job job = job_of(load_settings(arguments));
  EXPECT_EQ(job.compute.seed, 3);
  EXPECT_EQ(job.length.epochs, 50);
}

TEST(Arguments, AValueMayContainAnEqualsSign) {
  EXPECT_EQ(load_words({"train.steps=1", "data.dataset=/a=b/c.txt"})["data.dataset"], "/a=b/c.txt");
}

TEST(Arguments, HelpIsAskedFor) {
  for (const char* word : {"--help", "-h"}) {
    const std::vector<const char*> words = {"train_gpt", "no_such.key=1", word};
    EXPECT_TRUE(split_arguments(static_cast<int>(words.size()), words.data()).help);
  }
}

/// Returns the words of a text, separated by single blanks.
std::string unwrapped(const std::string& text) {
  std::istringstream stream(text);
  std::string all;
  for (std::string word; stream >> word;) all += (all.empty() ? "" : " ") + word;
  return all;
}

TEST(Config, HelpNamesEveryKeyWithDefaultUnitAndMeaning) {
  const std::string help = unwrapped(job_help("train_gpt"));
  for (const Key& key : job_keys().keys()) {
    const std::string& value = key.initial;
    expect_contains(
        help, {unwrapped(concat(key.name, " (", key.type, "; default ", value.empty() ? "empty" : value)),
               unwrapped(key.meaning)});
    EXPECT_FALSE(key.meaning.empty() || key.heading.empty()) << key.name;
  }
  expect_contains(help, {"usage: train_gpt", "dist.bucket_mib (number; default 25 MiB)"});
}

TEST(Config, HelpMarksTheTenFirstKeys) {
  std::istringstream help(job_help("train_gpt"));
  int marked = 0;
  for (std::string line; std::getline(help, line);) marked += line.starts_with("* ") ? 1 : 0;
  EXPECT_EQ(marked, 10);
}

TEST(Config, ProgramsBringTheirOwnDefaults) {
  const Job job = load({"train.batch_size=16"}, {{"train.epochs", "50"}, {"train.batch_size", "32"}});
  EXPECT_EQ(job.length.epochs, 50);
  EXPECT_EQ(job.batches.batch_size, 16);
  EXPECT_EQ(job.log.dir, "runs/train_gpt");
}

TEST(Config, ARunWithoutAFileIsNamedAfterItsModelAndItsData) {
  const auto folder = [](const std::string& dataset, const std::string& from) {
    return load({"train.steps=1", dataset.c_str(), from.c_str()}).log.dir;
  };
  EXPECT_EQ(folder("data.dataset=../my texts/", "model.from="), "runs/train_gpt-my_texts");
  EXPECT_EQ(folder("data.dataset=https://host/a/b.jsonl?key=/1", "model.from=gpt2/"),
            "runs/train_gpt-gpt2-b");
  EXPECT_EQ(load({"train.steps=1", "model.from=s3://bucket/base"}).log.dir, "runs/train_gpt-base");
  // File systems limit a name to 255 bytes.
  EXPECT_EQ(
      folder("data.dataset=https://host/" + std::string(300, 'd'), "model.from=" + std::string(100, 'm')),
      "runs/train_gpt-" + std::string(60, 'm') + "-" + std::string(60, 'd'));
  EXPECT_EQ(load({"--config=quickstart.ini", "data.dataset=other.txt"}).log.dir, "runs/quickstart");
}

TEST(Config, EveryPresetOfGpt2HasItsSizes) {
  const std::map<std::string, std::vector<int64_t>> table = {
      {"openai-gpt", {12, 12, 768}},  {"gpt2", {12, 12, 768}},     {"gpt2-medium", {24, 16, 1024}},
      {"gpt2-large", {36, 20, 1280}}, {"gpt2-xl", {48, 25, 1600}}, {"gopher-44m", {8, 16, 512}},
      {"gpt-mini", {6, 6, 192}},      {"gpt-micro", {4, 4, 128}},  {"gpt-nano", {3, 3, 48}},
  };
  EXPECT_EQ(families().front()->presets().size(), table.size());
  for (const auto& [name, sizes] : table) {
    const ModelOptions model = load({"train.steps=1", ("model.preset=" + name).c_str()}).model;
    EXPECT_EQ((std::vector<int64_t>{model.n_layer, model.n_head, model.n_embd}), sizes) << name;
  }
}

TEST_F(ConfigFile, AnExplicitSizeBeatsAPresetWhereverBothStand) {
  const std::string text = "[model]\nn_layer = 5\npreset = gpt-nano\n[train]\nsteps = 1\n";
  EXPECT_EQ(load_text(text).model.n_layer, 5);
  EXPECT_EQ(load_text(text).model.n_embd, 48);
  const Job job = load_text(text, {"model.preset=gpt-mini"});
  EXPECT_EQ(job.model.n_layer, 5);
  EXPECT_EQ(job.model.n_embd, 192);
}

TEST_F(ConfigFile, TheCommandLineBeatsTheFile) {
  const std::string text = "[train]\nsteps = 10\nseed = 4\n";
  const Job job = load_text(text, {"train.steps=20"});
  EXPECT_EQ(job.length.steps, 20);
  EXPECT_EQ(job.compute.seed, 4);
}

TEST_F(ConfigFile, StepsAndEpochsAreOneChoiceWhichTheCommandLineBeats) {
  const std::string text = "[train]\nsteps = 10\nepochs = 0\n";
  const LengthOptions length = load_text(text, {"train.epochs=2"}).length;
  EXPECT_EQ(length.epochs, 2);
  EXPECT_EQ(length.steps, 0);
  EXPECT_EQ(load_text(text, {"train.epochs=0"}).length.steps, 10);
  EXPECT_EQ(load({"train.steps=7"}, {{"train.epochs", "50"}}).length.epochs, 0);
}

TEST_F(ConfigFile, ResultsAreNamedAfterTheConfiguration) {
  EXPECT_EQ(load_text("[train]\nsteps = 1\n").log.dir, "runs/run");
  EXPECT_EQ(load_text("[train]\nsteps = 1\n[log]\ndir = here\n").log.dir, "here");
}

TEST_F(ConfigFile, CommentsBlanksQuotesAndLineEndsOfWindows) {
  const Job job = load_text(
      "\xEF\xBB\xBF# first\r\n ; second\r\n\r\n[ train ] # third\r\nsteps=7 ;fourth\r\n", {"train.steps=7"});
  EXPECT_EQ(job.length.steps, 7);
}

TEST(Ini, CommentsAndQuotes) {
  const auto entries =
      parse_ini("[a]\nx = 1 # one\ny=b#c ; two\nz = \" d # e \" # three\nempty =\n  [b] ; four\nx = 2", "f");
  ASSERT_EQ(entries.size(), 5U);
  EXPECT_EQ(entries[0].key, "a.x");
  EXPECT_EQ(entries[0].value, "1");
  EXPECT_EQ(entries[1].value, "b#c");
  EXPECT_EQ(entries[2].value, " d # e ");
  EXPECT_EQ(entries[3].value, "");
  EXPECT_EQ(entries[4].key, "b.x");
  EXPECT_EQ(entries[4].origin, "f:7");
}

TEST_F(ConfigFile, TheResolvedFileGivesTheSameConfiguration) {
  const Job job = load({"model.preset=gpt-mini", "model.n_layer=7", "train.epochs=3",
                        "train.learning_rate=0.00123456789", "data.dataset=/a folder/b #1; c.txt",
                        "snapshot.path= x ", "model.bias=no", "dist.replicas=6", "train.min_lr=1e-300"});
  const std::string ini = to_ini(job);
  const Job again = load_file(ini);
  EXPECT_EQ(to_ini(again), ini);
  EXPECT_EQ(values_of(again), values_of(job));
  EXPECT_EQ(values_of(again)["data.dataset"], "/a folder/b #1; c.txt");
  EXPECT_EQ(again.snapshot_place(), " x ");
  EXPECT_EQ(again.schedule.learning_rate, 0.00123456789);
  EXPECT_EQ(parse_ini(ini, "ini").size(), job_keys().keys().size());
}

TEST(Config, BooleansHaveTheUsualSpellings) {
  for (const char* word : {"true", "True", "yes", "on", "1"})
    EXPECT_EQ(load_words({"train.steps=1", (std::string("model.bias=") + word).c_str()})["model.bias"],
              "true");
  for (const char* word : {"false", "FALSE", "no", "off", "0"})
    EXPECT_EQ(load_words({"train.steps=1", (std::string("model.bias=") + word).c_str()})["model.bias"],
              "false");
}

TEST(Config, OptionsAreWrittenWithDashesOrUnderscores) {
  for (const char* word : {"--train.batch-size=3", "--train.batch_size=3", "train.batch-size=3"})
    EXPECT_EQ(load({"train.steps=1", word}).batches.batch_size, 3) << word;
  EXPECT_EQ(load({"train.steps=1", "--model.n-layer", "3"}).model.n_layer, 3);
}

TEST(Config, QuestionsAboutAProgramAreKept) {
  const auto split = [](const char* word) {
    const char* words[] = {"train_gpt", word};
    return split_arguments(2, words);
  };
  EXPECT_TRUE(split("--version").version);
  EXPECT_TRUE(split("--print-config").print_config);
  EXPECT_TRUE(split("--print_config").print_config);
  EXPECT_TRUE(split("-h").help);
  EXPECT_FALSE(split("--verbose").version);
}

/// Returns "key = value" for each value that `there` gives to `here`.
std::vector<std::string> inherited(const Settings& here, const Settings& there) {
  std::vector<std::string> values;
  for (const auto& [key, value, origin] : inherited_values(here, there))
    values.push_back(concat(key, " = ", value));
  return values;
}

TEST(Settings, WhatNobodySetIsTakenFromAnEarlierRun) {
  Settings there = load_words({"train.steps=9", "train.seed=7", "model.n_embd=64", "train.grad_clip=0.5",
                               "data.dataset=elsewhere.txt", "train.eval_every=3", "dist.replicas=4"});
  there.replace("train.decay_steps", "9");
  const Settings here = load_words({"train.steps=20", "train.grad_clip=1", "model.preset=gpt-nano"});
  EXPECT_EQ(inherited(here, there),
            (std::vector<std::string>{"data.dataset = elsewhere.txt", "train.seed = 7", "dist.replicas = 4"}))
      << "train.grad_clip and the preset were set, and train.eval_every does not change the bits";
  // A program that fills in fields has set all of them. Only dist.replicas = 0 counts as unset.
  Job filled_in;
  filled_in.length.steps = 20;
  filled_in.compute.device = Device::cpu;
  EXPECT_EQ(inherited(job_keys().settings_of(filled_in), there),
            std::vector<std::string>{"dist.replicas = 4"});
}

TEST(Config, AnEarlierRunsSettingsAreReadWithoutWhatIsNotKnown) {
  const Job job = earlier("[train]\nsteps = 12\nseed = 3\nfolds = 7\nprecision = fp4\n[model]\nn_embd = 64\n",
                          "config.ini");
  EXPECT_EQ(job.compute.seed, 3);
  EXPECT_EQ(job.model.n_embd, 64);
  EXPECT_EQ(job.compute.precision, DType::f32);
}

TEST(Config, KeysAreClassedByWhoMustAgree) {
  std::map<std::string, KeyClass> classes;
  for (const Key& key : job_keys().keys()) classes[key.name] = key.key_class;
  for (const char* key : {"train.decay_steps", "train.batch_size", "train.accumulate", "train.seed",
                          "dist.replicas", "dist.reduction", "model.n_embd", "data.train_split"})
    EXPECT_EQ(classes.at(key), KeyClass::semantic) << key;
  for (const char* key :
       {"train.steps", "train.epochs", "data.dataset", "data.validation", "train.eval_every",
        "dist.bucket_mib", "dist.timeout_s", "snapshot.path", "model.preset"})
    EXPECT_EQ(classes.at(key), KeyClass::collective) << key;
  for (const char* key : {"train.threads", "train.memory_gib", "log.dir", "log.every_steps", "log.trace"})
    EXPECT_EQ(classes.at(key), KeyClass::local) << key;
}

TEST(Config, AutoMeansTheDeviceThatIsThere) {
  EXPECT_EQ(load({"train.steps=1"}).compute.device, Device::cpu);
}

TEST(Config, ReplicasAreResolvedByTheRanks) {
  const auto replicas_on = [](int ranks, const char* setting) {
    const TemporaryDirectory directory;
    const std::string folder = "log.dir=" + (directory / "run");
    const Settings settings = load_words({"train.steps=1", "train.threads=1", setting, folder.c_str()});
    int replicas = 0;
    run_ranks(ranks, [&](Communicator& communicator) {
      const World world(communicator.shared_from_this());
      const Job job = resolve(settings, world);
      if (world.is_first()) replicas = job.dist.replicas;
    });
    return replicas;
  };
  EXPECT_EQ(replicas_on(3, "train.seed=1"), 3);
  EXPECT_EQ(replicas_on(3, "dist.replicas=8"), 8);
  expect_contains(user_error([&] { replicas_on(3, "dist.replicas=2"); }), {"dist.replicas = 2", "ranks, 3"});
}

TEST_F(ConfigFile, AnotherFolderOfConfigurationsIsLookedUpFirst) {
  write("quickstart.ini", "[train]\nsteps = 77\n");
  setenv("LOCKSTEP_CONFIG_DIR", folder_.c_str(), 1);
  const Job job = load({"--config=quickstart.ini"});
  unsetenv("LOCKSTEP_CONFIG_DIR");
  EXPECT_EQ(job.length.steps, 77);
  EXPECT_EQ(job.log.dir, "runs/quickstart");
}

}  // namespace
}  // namespace lockstep
