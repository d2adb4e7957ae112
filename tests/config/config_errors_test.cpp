// SPDX-License-Identifier: Apache-2.0
// Every mistake in a configuration is refused with the key and its location.
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "lockstep/config/settings.h"
#include "lockstep/core/gpu.h"
#include "support/config_support.h"

namespace lockstep {
namespace {

struct BadInput {
  std::vector<const char*> words;
  std::vector<std::string> named;
};

void PrintTo(const BadInput& input, std::ostream* out) {
  for (const char* word : input.words) *out << word << " ";
}

class BadCommandLine : public testing::TestWithParam<BadInput> {};

TEST_P(BadCommandLine, IsRefusedByName) {
  expect_contains(user_error([] { load(GetParam().words); }), GetParam().named);
}

INSTANTIATE_TEST_SUITE_P(
    Unknown, BadCommandLine,
    testing::Values(
        BadInput{{"train.stpes=3"}, {"command line: unknown key train.stpes", "did you mean train.steps?"}},
        BadInput{{"train.n_layer=3"}, {"train.n_layer", "did you mean model.n_layer?"}},
        BadInput{{"n_layer=3"}, {"'n_layer=3' is not understood", "did you mean model.n_layer?"}},
        BadInput{{"log.every_step=3"}, {"did you mean log.every_steps?"}},
        BadInput{{"zzz.qqqqq=1"}, {"unknown key zzz.qqqqq (--help lists all keys)"}},
        BadInput{{"model.n_layer", "3"}, {"'model.n_layer' is not understood (write model.n_layer=VALUE)"}},
        BadInput{{"something"}, {"'something' is not understood"}},
        BadInput{{"--verbose"}, {"'--verbose' is not understood (--help lists all keys)"}},
        BadInput{{"--flash"}, {"'--flash' is not understood (--help lists all keys)"}},
        BadInput{{"quickstart.ini"}, {"'quickstart.ini' is not", "did you mean --config quickstart.ini?"}},
        BadInput{{"quickstart"}, {"did you mean --config quickstart?"}},
        BadInput{{"-c", "mine.ini"}, {"'-c' is not understood (did you mean --config mine.ini?)"}},
        BadInput{{"--confg=mine.ini"}, {"did you mean --config mine.ini?"}},
        BadInput{{"--config-name=mine"}, {"did you mean --config mine?"}},
        BadInput{{"-config", "mine.ini"}, {"did you mean --config mine.ini?"}},
        BadInput{{"--versoin"}, {"did you mean --version?"}},
        BadInput{{"--print-confg"}, {"did you mean --print-config?"}},
        BadInput{{"--batch-size=3"}, {"did you mean train.batch_size?"}},
        BadInput{{"--train.steps"}, {"--train.steps lacks its value"}},
        BadInput{{"--train.steps", "--help"}, {"--train.steps lacks its value"}},
        BadInput{{"--config"}, {"--config lacks its value"}},
        BadInput{{"--config="}, {"--config lacks its value"}},
        BadInput{{"--config", "a", "--config", "b"}, {"--config is given twice"}},
        BadInput{{"--config", "/"}, {"--config /: not a file"}},
        BadInput{{"--config", "/dev/null"}, {"--config /dev/null: not a file", "it cannot be a pipe"}},
        BadInput{{"--config", "/proc/self/mem"}, {"--config /proc/self/mem cannot be read"}},
        BadInput{{"--config", "no_such_file.ini"}, {"no_such_file.ini: no such file", "quickstart.ini"}}));

INSTANTIATE_TEST_SUITE_P(
    Mistyped, BadCommandLine,
    testing::Values(
        BadInput{{"train.steps=2e3"}, {"train.steps: expected an integer, got '2e3'"}},
        BadInput{{"train.steps="}, {"train.steps: expected an integer, got ''"}},
        BadInput{{"train.steps=3 "}, {"train.steps: expected an integer"}},
        BadInput{{"train.learning_rate=small"}, {"train.learning_rate: expected a number, got 'small'"}},
        BadInput{{"train.learning_rate=1e-3x"}, {"train.learning_rate: expected a number"}},
        BadInput{{"train.learning_rate=nan"}, {"train.learning_rate: nan is not a finite number"}},
        BadInput{{"train.grad_clip=inf"}, {"train.grad_clip: inf is not a finite number"}},
        BadInput{{"train.weight_decay=1e999"}, {"train.weight_decay: 1e999 is out of range"}},
        BadInput{{"train.steps=99999999999999999999"}, {"train.steps: 99999999999999999999 is out of range"}},
        BadInput{{"model.bias=maybe"}, {"model.bias: expected true or false, got 'maybe'"}},
        BadInput{{"model.activation=gelu"}, {"model.activation: expected one of gelu_tanh, gelu_erf"}},
        BadInput{{"model.preset=gpt3"}, {"model.preset: expected one of openai-gpt, gpt2"}},
        BadInput{{"train.recompute=segments=0"},
                 {"train.recompute: expected one of none, attention, block, segments=K, got 'segments=0'"}},
        BadInput{{"train.recompute=segments=2x"}, {"train.recompute: expected one of none, attention"}},
        BadInput{{"train.steps=1", "train.recompute=segments=5", "model.n_layer=4"},
                 {"train.recompute = segments=5", "model.n_layer = 4 blocks"}},
        BadInput{{"dist.reduction=ring"}, {"dist.reduction: expected one of tree, native"}},
        BadInput{{"snapshot.resume=maybe"}, {"snapshot.resume: expected one of auto, never, required"}},
        BadInput{{"data.dataset=a\"b"}, {"data.dataset: the value 'a\"b' contains a double quote"}},
        BadInput{{"log.dir=a\nb"}, {"log.dir: ", "invisible character"}},
        BadInput{{"data.tokenizer=\xfc.json"}, {"data.tokenizer: the value '\xfc.json' is not UTF-8"}},
        BadInput{{"snapshot.path=s3://b/\xed\xa0\x80"}, {"snapshot.path: ", "is not UTF-8"}},
        BadInput{{"model.from=\xe2\x82"}, {"model.from: ", "is not UTF-8"}},
        BadInput{{"train.freeze=\xf0\x8f\xbf\xbf"}, {"train.freeze: ", "is not UTF-8"}}));

TEST(BadName, OfAProgramOrConfigurationIsNoFolder) {
  const char* const program[] = {"train\xe9"};
  expect_contains(user_error([&] { load_settings(split_arguments(1, program)); }),
                  {"log.dir: the value 'runs/train\xe9' is not UTF-8"});
  const TemporaryDirectory folder;
  write_text(folder / "caf\xe9.ini", "[train]\r\nsteps = 3\r\n");
  const std::string file = folder / "caf\xe9.ini";
  const char* const arguments[] = {"train", "--config", file.c_str()};
  expect_contains(user_error([&] { load_settings(split_arguments(3, arguments)); }),
                  {"log.dir: ", "is not UTF-8"});
  const char* const named[] = {"train", "--config", file.c_str(), "log.dir=caf\u00e9/\U0001F3AD\u20ac"};
  EXPECT_EQ(load_settings(split_arguments(4, named))["train.steps"], "3");
}

INSTANTIATE_TEST_SUITE_P(
    OutOfRange, BadCommandLine,
    testing::Values(
        BadInput{{"train.steps=-1"}, {"train.steps: must be at least 0, not -1"}},
        BadInput{{"model.n_head=0"}, {"model.n_head: must be at least 1, not 0"}},
        BadInput{{"model.dropout=1"}, {"model.dropout: must be at least 0 and below 1, not 1"}},
        BadInput{{"model.dropout=-0.1"}, {"model.dropout"}}, BadInput{{"train.beta1=1"}, {"train.beta1"}},
        BadInput{{"train.beta2=-1"}, {"train.beta2"}}, BadInput{{"train.batch_size=0"}, {"train.batch_size"}},
        BadInput{{"train.accumulate=0"}, {"train.accumulate"}},
        BadInput{{"train.threads=-2"}, {"train.threads"}}, BadInput{{"train.seed=-2"}, {"train.seed"}},
        BadInput{{"train.memory_gib=-1"}, {"train.memory_gib: must be at least 0, not -1"}},
        BadInput{{"data.block_size=0"}, {"data.block_size"}},
        BadInput{{"data.train_split=1.5"}, {"data.train_split: must be above 0 and at most 1, not 1.5"}},
        BadInput{{"data.train_split=0"}, {"data.train_split"}},
        BadInput{{"dist.replicas=-1"}, {"dist.replicas"}},
        BadInput{{"dist.bucket_mib=0"}, {"dist.bucket_mib: must be above 0, not 0"}},
        BadInput{{"dist.timeout_s=0"}, {"dist.timeout_s"}}, BadInput{{"snapshot.keep=0"}, {"snapshot.keep"}},
        BadInput{{"log.every_steps=0"}, {"log.every_steps"}}));

INSTANTIATE_TEST_SUITE_P(
    Contradictory, BadCommandLine,
    testing::Values(
        BadInput{{}, {"neither train.steps nor train.epochs is set"}},
        BadInput{{"train.steps=0", "data.dataset=my text.txt"},
                 {"train.steps = 0 trains nothing", "use evaluate", ": evaluate runs/", " 'my text.txt'"}},
        BadInput{{"train.steps=0", "model.from=gpt", "data.validation=a.jsonl"}, {": evaluate gpt a.jsonl"}},
        BadInput{{"train.steps=1", "train.epochs=1"}, {"train.steps = 1", "train.epochs = 1", "one of them"}},
        BadInput{{"train.steps=1", "model.n_embd=130"}, {"model.n_embd = 130", "model.n_head = 4"}},
        BadInput{{"train.steps=1", "train.min_lr=1"}, {"train.min_lr = 1", "train.learning_rate = 0.001"}},
        BadInput{{"train.steps=1", "train.warmup_steps=2"}, {"train.warmup_steps = 2", "train.steps = 1"}},
        BadInput{{"train.steps=1", "train.patience=2", "train.eval_every=0"},
                 {"train.patience = 2", "train.eval_every above 0, not 0"}},
        BadInput{{"train.steps=1", "train.cooldown_steps=2"},
                 {"train.cooldown_steps = 2 needs train.schedule = wsd"}},
        BadInput{{"train.steps=9", "train.schedule=wsd", "train.cooldown_steps=5", "train.warmup_steps=5",
                  "train.decay_steps=9"},
                 {"train.warmup_steps = 5 and train.cooldown_steps = 5", "train.decay_steps = 9"}},
        BadInput{{"train.steps=1", "train.accumulate=3"}, {"train.batch_size = 8", "train.accumulate = 3"}},
        BadInput{{"train.steps=1", "train.precision=fp8"}, {"train.precision", "fp32, bf16, fp16", "fp8"}},
        BadInput{{"train.steps=1", "data.dataset="}, {"data.dataset is empty"}},
        BadInput{{"train.steps=1", "snapshot.path=none", "snapshot.resume=required"},
                 {"snapshot.resume = required", "snapshot.path"}}));

TEST(BadDevice, WithoutAGpuCudaIsRefusedWithTheReason) {
  if (count_gpus() > 0) GTEST_SKIP() << "this machine has a GPU";
  expect_contains(user_error([] {
                    load({"train.steps=1", "train.device=cuda"});
                  }),
                  {"train.device = cuda", why_no_gpu(), "set auto or cpu"});
  EXPECT_FALSE(why_no_gpu().empty());
  EXPECT_EQ(load({"train.steps=1"}).compute.device, Device::cpu);
}

struct BadText {
  const char* text;
  std::vector<std::string> named;
};

void PrintTo(const BadText& input, std::ostream* out) { *out << input.text; }

class BadFile : public testing::TestWithParam<BadText> {};

TEST_P(BadFile, IsRefusedWithItsLine) {
  expect_contains(user_error([] { load_file(GetParam().text); }), GetParam().named);
}

INSTANTIATE_TEST_SUITE_P(
    Text, BadFile,
    testing::Values(
        BadText{"[train]\nsteps = 1\nstepz = 2\n",
                {"a.ini:3: unknown key train.stepz", "did you mean train.steps?"}},
        BadText{"[train]\n\nsteps = many\n", {"a.ini:3: train.steps: expected an integer, got 'many'"}},
        BadText{"[train]\nsteps = 1\n[log]\n[train]\nsteps = 2\n", {"a.ini:5: train.steps", "line 2"}},
        BadText{"[train]\nsteps 1\n", {"a.ini:2: expected key = value", "steps 1"}},
        BadText{"steps = 1\n", {"a.ini:1: ", "before the first [section]"}},
        BadText{"[train\nsteps = 1\n", {"a.ini:1: expected a section [name]"}},
        BadText{"[]\nsteps = 1\n", {"a.ini:1: expected a section"}},
        BadText{"[log]\ndir = \"x\n", {"a.ini:2: ", "closing quote"}},
        BadText{"[log]\ndir = \"x\" y\n", {"a.ini:2: ", "text follows the closing quote"}},
        BadText{"[trian]\nsteps = 1\n", {"a.ini:2: unknown key trian.steps", "did you mean train.steps?"}},
        BadText{"[train]\nlearning_rate = inf\n", {"a.ini:2: train.learning_rate: inf"}}));

// Comparing such a key with every known one took a minute and half a gigabyte.
TEST(Ini, ALongKeyIsCutInTheMessage) {
  const std::string long_key(1'000'000, 'k');
  const std::string message =
      user_error([&] { with_settings({}, parse_ini("[train]\n" + long_key + " = 1\n", "f")); });
  EXPECT_EQ(message, "f:2: unknown key train." + std::string(74, 'k') + "... (--help lists all keys)");
  EXPECT_NO_THROW(earlier("[train]\n" + long_key + " = 1\n", "f"));
}

TEST(Ini, AFileOfMoreThanAMebibyteIsRefused) {
  EXPECT_EQ(user_error([] { parse_ini(std::string(1048577, '#'), "f.ini"); }),
            "f.ini has 1048577 bytes, but a configuration has at most 1048576");
}

TEST(Ini, AZeroByteIsNotText) {
  expect_contains(user_error([] { parse_ini(std::string("[a]\nb\0 = 1", 10), "f"); }),
                  {"f:2", "not a text file"});
}

TEST(BadConfig, OneThatAProgramFilledInIsChecked) {
  const auto with = [](auto change) {
    Job job;
    job.length.steps = 1;
    change(job);
    return user_error([&] { job_of(job_keys().settings_of(job)); });
  };
  EXPECT_EQ(with([](Job&) {}), "(nothing was thrown)");
  expect_contains(with([](Job& c) { c.optimizer.beta1 = 1.0; }), {"train.beta1", "below 1"});
  expect_contains(with([](Job& c) { c.length.steps = 0; }), {"train.steps", "train.epochs"});
  expect_contains(with([](Job& c) { c.dist.replicas = (1 << 20) + 1; }), {"dist.replicas", "at most"});
  expect_contains(with([](Job& c) { c.schedule.learning_rate = std::nan(""); }), {"not a finite number"});
}

}  // namespace
}  // namespace lockstep
