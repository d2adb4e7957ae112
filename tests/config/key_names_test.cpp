// SPDX-License-Identifier: Apache-2.0
// Names from other programs and misspelled names are answered with the right key. Unrelated names are
// answered with none.
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/job/keys.h"
#include "support/config_support.h"

namespace lockstep {
namespace {

/// [name typed without a section]: the setting that the message names. From nanoGPT's train.py, Hugging
/// Face's TrainingArguments, and PyTorch's optimizers, DistributedDataParallel and FullyShardedDataParallel.
const std::map<std::string, std::string> names_elsewhere = {
    {"adam_beta1", "train.beta1"},
    {"adam_beta2", "train.beta2"},
    {"amp", "train.precision"},
    {"bf16", "train.precision=bf16"},
    {"block", "data.block_size"},
    {"bucket_cap_mb", "dist.bucket_mib"},
    {"checkpoint_dir", "snapshot.path"},
    {"clip_grad", "train.grad_clip"},
    {"clip_grad_norm", "train.grad_clip"},
    {"context_length", "data.block_size"},
    {"corpus", "data.dataset"},
    {"cpu_offload", "dist.offload"},
    {"data", "data.dataset"},
    {"data_dir", "data.dataset"},
    {"dataset_name", "data.dataset"},
    {"decay_lr", "train.schedule"},
    {"dtype", "train.precision"},
    {"early_stopping_patience", "train.patience"},
    {"eval", "train.eval_every"},
    {"eval_interval", "train.eval_every"},
    {"eval_steps", "train.eval_every"},
    {"fp16", "train.precision=fp16"},
    {"grad_accumulation", "train.accumulate"},
    {"gradient_accumulation_steps", "train.accumulate"},
    {"gradient_checkpointing", "train.recompute"},
    {"gradient_clip", "train.grad_clip"},
    {"hidden_size", "model.n_embd"},
    {"init_from", "model.from"},
    {"iterations", "train.steps"},
    {"iters", "train.steps"},
    {"log_interval", "log.every_steps"},
    {"logging_steps", "log.every_steps"},
    {"lr", "train.learning_rate"},
    {"lr_decay_iters", "train.decay_steps"},
    {"lr_scheduler", "train.schedule"},
    {"lr_scheduler_type", "train.schedule"},
    {"max_epochs", "train.epochs"},
    {"max_grad_norm", "train.grad_clip"},
    {"max_iters", "train.steps"},
    {"max_length", "data.block_size"},
    {"max_seq_length", "data.block_size"},
    {"max_steps", "train.steps"},
    {"mixed_precision", "train.precision"},
    {"model", "model.preset or model.from"},
    {"model_name_or_path", "model.from"},
    {"model_size", "model.preset"},
    {"model_type", "model.preset"},
    {"num_attention_heads", "model.n_head"},
    {"num_epochs", "train.epochs"},
    {"num_heads", "model.n_head"},
    {"num_hidden_layers", "model.n_layer"},
    {"num_layers", "model.n_layer"},
    {"num_steps", "train.steps"},
    {"num_train_epochs", "train.epochs"},
    {"optimizer_offload", "dist.offload"},
    {"out_dir", "log.dir"},
    {"output", "log.dir"},
    {"output_dir", "log.dir"},
    {"overwrite_output_dir", "--fresh"},
    {"per_device_train_batch_size", "train.batch_size"},
    {"pretrained", "model.from"},
    {"resume_from_checkpoint", "snapshot.resume"},
    {"save_every", "snapshot.every_steps"},
    {"save_interval", "snapshot.every_steps"},
    {"save_steps", "snapshot.every_steps"},
    {"save_total_limit", "snapshot.keep"},
    {"seq_len", "data.block_size"},
    {"seq_length", "data.block_size"},
    {"sequence_length", "data.block_size"},
    {"sharding_strategy", "dist.shard"},
    {"tokenizer_name", "data.tokenizer"},
    {"total_steps", "train.steps"},
    {"train_batch_size", "train.batch_size"},
    {"val_split", "data.train_split"},
    {"validation", "data.validation"},
    {"validation_file", "data.validation"},
    {"validation_split", "data.train_split"},
    {"warmup", "train.warmup_steps"},
    {"warmup_iters", "train.warmup_steps"},
    {"wd", "train.weight_decay"},
    {"zero_stage", "dist.shard"},
};

std::string text_of(const std::string& suggestion) { return " (did you mean " + suggestion + "?)"; }

TEST(KeyNames, NamesOfOtherProgramsLeadToOurs) {
  for (const auto& [name, ours] : names_elsewhere) {
    EXPECT_EQ(job_keys().suggestion(name), text_of(ours)) << name;
    EXPECT_EQ(job_keys().suggestion("train." + name), text_of(ours)) << name;
  }
}

TEST(KeyNames, EverySuggestionIsAKeyOrAnOption) {
  std::set<std::string> known = {"--fresh", "model.preset or model.from"};
  for (const Key& key : job_keys().keys()) known.insert(key.name);
  for (const auto& [name, ours] : names_elsewhere)
    EXPECT_TRUE(known.contains(ours.substr(0, ours.find('=')))) << name << " -> " << ours;
}

TEST(KeyNames, ASlipOfTheKeyboardLeadsToTheKey) {
  const std::map<std::string, std::string> slips = {
      {"train.stepz", "train.steps"},        {"trian.steps", "train.steps"},
      {"log.every_step", "log.every_steps"}, {"snapshot.every_step", "snapshot.every_steps"},
      {"batchsize", "train.batch_size"},     {"train.learnin_rate", "train.learning_rate"},
      {"model.nlayer", "model.n_layer"},     {"train.weigth_decay", "train.weight_decay"},
      {"dist.replica", "dist.replicas"},     {"data.datset", "data.dataset"},
  };
  for (const auto& [name, key] : slips) EXPECT_EQ(job_keys().suggestion(name), text_of(key)) << name;
}

TEST(KeyNames, AKeyInAnotherSectionIsFound) {
  EXPECT_EQ(job_keys().suggestion("model.steps"), text_of("train.steps"));
  EXPECT_EQ(job_keys().suggestion("n_layer"), text_of("model.n_layer"));
}

TEST(KeyNames, NothingFarFetchedIsProposed) {
  for (const char* name :
       {"verbose", "wandb", "gpu", "loss", "dev", "num_workers", "seeds_everywhere", "tie", "train.x", "fsdp",
        "note", "shape", "log.level", "momentum", "world_size", "backend", "workers", "grip"})
    EXPECT_EQ(job_keys().suggestion(name), " (--help lists all keys)") << name;
}

TEST(KeyNames, TheCommandLineAndTheFileUseThem) {
  const std::string on_command_line = "'--lr' is not understood (did you mean train.learning_rate?)";
  const std::vector<const char*> words = {"train_gpt", "train.steps=1", "--lr", "0.1"};
  EXPECT_NE(user_error([&] { load_settings(split_arguments(4, words.data())); }).find(on_command_line),
            std::string::npos);
  EXPECT_NE(user_error([] {
              load_file("[train]\nlr = 1\n");
            }).find("a.ini:2: unknown key train.lr (did you mean train.learning_rate?)"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
