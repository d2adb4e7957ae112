// SPDX-License-Identifier: Apache-2.0
// The recipes that are shipped in configs/.
#include <gtest/gtest.h>
#include <map>

#include "lockstep/core/gpu.h"
#include "lockstep/job/keys.h"
#include "support/config_support.h"

namespace lockstep {
namespace {

std::map<std::string, std::string> values_by_key(const Job& job) {
  const Settings settings = job_keys().settings_of(job);
  std::map<std::string, std::string> values;
  for (const Key& key : job_keys().keys()) values[key.name] = settings[key.name];
  return values;
}

TEST(Shipped, ShakespeareOnAGpuIsNanoGptsRecipe) {
  const Job job = load({"--config", "shakespeare.ini"});
  const auto values = values_by_key(job);
  const std::map<std::string, std::string> recipe = {
      {"model.n_layer", "6"},     {"model.n_head", "6"},         {"model.n_embd", "384"},
      {"data.block_size", "256"}, {"dist.replicas", "8"},        {"train.batch_size", "8"},
      {"model.dropout", "0.2"},   {"train.steps", "5000"},       {"train.beta2", "0.99"},
      {"train.beta1", "0.9"},     {"train.weight_decay", "0.1"}, {"train.learning_rate", "0.001"},
      {"train.grad_clip", "1"},   {"train.eval_every", "250"},   {"train.precision", "fp32"},
      {"train.min_lr", "1e-04"},  {"train.warmup_steps", "100"}, {"model.bias", "false"}};
  for (const auto& [key, value] : recipe) EXPECT_EQ(values.at(key), value) << key;
}

TEST(Shipped, Gpt2IsTheReproductionsRecipe) {
  const Job job = load({"--config", "gpt2_124m.ini", "train.device=cpu"});
  const auto values = values_by_key(job);
  const std::map<std::string, std::string> recipe = {{"data.dataset", "random_tokens"},
                                                     {"data.block_size", "1024"},
                                                     {"model.n_layer", "12"},
                                                     {"model.n_head", "12"},
                                                     {"model.n_embd", "768"},
                                                     {"model.vocab_size", "50304"},
                                                     {"model.bias", "true"},
                                                     {"model.dropout", "0"},
                                                     {"model.activation", "gelu_tanh"},
                                                     {"train.beta1", "0.9"},
                                                     {"train.beta2", "0.95"},
                                                     {"train.learning_rate", "6e-04"},
                                                     {"train.weight_decay", "0.1"},
                                                     {"train.grad_clip", "1"},
                                                     {"train.min_lr", "6e-05"},
                                                     {"dist.reduction", "tree"},
                                                     {"train.warmup_steps", "700"}};
  for (const auto& [key, value] : recipe) EXPECT_EQ(values.at(key), value) << key;
  EXPECT_EQ(job.dist.replicas * job.batches.batch_size * job.text.block_size, 524'288);
}

/// Without a GPU, the recipe is refused with advice. It neither crashes nor trains for weeks.
TEST(Shipped, Gpt2WithoutAGpuSaysWhatToDo) {
  if (count_gpus() > 0) GTEST_SKIP() << "there is a GPU";
  expect_contains(user_error([] {
                    load({"--config", "gpt2_124m.ini"});
                  }),
                  {"train.device = cuda", why_no_gpu(), "set auto or cpu"});
}

TEST(Shipped, EveryConfigurationIsFoundByNameAndValid) {
  for (const char* name :
       {"quickstart", "quickstart.ini", "shakespeare.ini", "shakespeare_cpu.ini", "llama_cpu.ini"})
    EXPECT_NO_THROW(load({"--config", name})) << name;
}

TEST(Shipped, ShakespeareOnTheCpuIsTheRecipe) {
  const Job job = load({"--config", "shakespeare_cpu.ini", "train.device=cpu"});
  EXPECT_EQ(to_ini(job), R"([data]
dataset = shakespeare
tokenizer = char
block_size = 64
train_split = 0.9
validation =
columns =
chat_template = auto
loss_on = answer
loss_mean = tokens
packing = true

[model]
family = gpt2
from =
preset =
n_layer = 4
n_head = 4
n_embd = 128
vocab_size = 0
vocab_multiple = 0
n_positions = 0
dropout = 0
tie_weights = true
bias = false
activation = gelu_erf
n_kv_head = 0
head_dim = 0
intermediate_size = 0
norm_epsilon = 1e-05
rope_theta = 10000
rope_scaling = none
rope_factor = 1
rope_low_freq_factor = 1
rope_high_freq_factor = 4
rope_original_positions = 8192
qwen_version = 3

[train]
steps = 2000
epochs = 0
batch_size = 3
accumulate = 1
learning_rate = 0.001
warmup_steps = 100
min_lr = 1e-04
decay_steps = 0
schedule = cosine
cooldown_steps = 0
weight_decay = 0.1
freeze =
groups =
beta1 = 0.9
beta2 = 0.99
grad_clip = 1
seed = 1337
device = cpu
precision = fp32
amx = false
graph = true
tune_matmul = false
logit_rows = 0
recompute = none
threads = 0
memory_gib = 0
eval_every = 500
patience = 0
min_delta = 0
sample_every = 0

[dist]
replicas = 4
reduction = tree
shard = none
group = 0
offload = none
bucket_mib = 25
timeout_s = 300
audit_every = 0

[snapshot]
path = auto
every_minutes = 10
every_steps = 0
keep = 1
resume = auto
wait_minutes = 0

[log]
dir = runs/shakespeare_cpu
every_steps = 1
trace = none
)");
}

}  // namespace
}  // namespace lockstep
