// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <optional>

#include "config/config_schema.h"
#include "core/error.h"
#include "core/text.h"

namespace lockstep {
namespace {

/// Names that users of PyTorch, nanoGPT and Hugging Face's Trainer type, without a section, and what to write
/// here instead.
const std::map<std::string, std::string>& names_elsewhere() {
  static const std::map<std::string, std::string> names = {
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
      {"validation", "data.train_split"},
      {"validation_split", "data.train_split"},
      {"warmup", "train.warmup_steps"},
      {"warmup_iters", "train.warmup_steps"},
      {"wd", "train.weight_decay"},
      {"zero_stage", "dist.shard"},
  };
  return names;
}

std::string after_dot(const std::string& name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

std::string suggest_config_key(const std::string& name) {
  const std::string last = after_dot(name);
  std::optional<size_t> least;
  std::string nearest;
  for (const ConfigKey& key : config_schema()) {
    if (key.name == name) return concat(" (write ", name, "=VALUE)");
    const std::optional<size_t> slips = slips_between(last, after_dot(key.name));
    // Two sections may have a key of this name: the section that was written wins.
    const bool is_in_section = name.starts_with(key.name.substr(0, key.name.find('.') + 1));
    if (!slips || (least && (*slips > *least || (*slips == *least && !is_in_section)))) continue;
    least = slips;
    nearest = key.name;
  }
  if (const auto known = names_elsewhere().find(last); least != 0 && known != names_elsewhere().end())
    nearest = known->second;
  return nearest.empty() ? " (--help lists all keys)" : concat(" (did you mean ", nearest, "?)");
}

const ConfigKey& find_config_key(const std::string& name, const std::string& origin) {
  for (const ConfigKey& key : config_schema())
    if (key.name == name) return key;
  throw UserError(concat(origin, ": unknown key ", name, suggest_config_key(name)));
}

}  // namespace lockstep
