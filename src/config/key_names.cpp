// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <optional>
#include <set>

#include "config/config_schema.h"
#include "core/error.h"
#include "core/text.h"

namespace lockstep {
namespace {

/// Settings, each with the names that users of PyTorch, nanoGPT and Hugging Face's Trainer type instead.
const std::map<std::string, std::set<std::string>>& names_elsewhere() {
  static const std::map<std::string, std::set<std::string>> names = {
      {"--fresh", {"overwrite_output_dir"}},
      {"data.block_size",
       {"block", "context_length", "max_length", "max_seq_length", "seq_len", "seq_length",
        "sequence_length"}},
      {"data.dataset", {"corpus", "data", "data_dir", "dataset_name"}},
      {"data.tokenizer", {"tokenizer_name"}},
      {"data.train_split", {"val_split", "validation", "validation_split"}},
      {"dist.bucket_mib", {"bucket_cap_mb"}},
      {"dist.offload", {"cpu_offload", "optimizer_offload"}},
      {"dist.shard", {"sharding_strategy", "zero_stage"}},
      {"log.dir", {"out_dir", "output", "output_dir"}},
      {"log.every_steps", {"log_interval", "logging_steps"}},
      {"model.from", {"init_from", "model_name_or_path", "pretrained"}},
      {"model.n_embd", {"hidden_size"}},
      {"model.n_head", {"num_attention_heads", "num_heads"}},
      {"model.n_layer", {"num_hidden_layers", "num_layers"}},
      {"model.preset", {"model_size", "model_type"}},
      {"model.preset or model.from", {"model"}},
      {"snapshot.every_steps", {"save_every", "save_interval", "save_steps"}},
      {"snapshot.keep", {"save_total_limit"}},
      {"snapshot.path", {"checkpoint_dir"}},
      {"snapshot.resume", {"resume_from_checkpoint"}},
      {"train.accumulate", {"grad_accumulation", "gradient_accumulation_steps"}},
      {"train.batch_size", {"per_device_train_batch_size", "train_batch_size"}},
      {"train.beta1", {"adam_beta1"}},
      {"train.beta2", {"adam_beta2"}},
      {"train.decay_steps", {"lr_decay_iters"}},
      {"train.epochs", {"max_epochs", "num_epochs", "num_train_epochs"}},
      {"train.eval_every", {"eval", "eval_interval", "eval_steps"}},
      {"train.grad_clip", {"clip_grad", "clip_grad_norm", "gradient_clip", "max_grad_norm"}},
      {"train.learning_rate", {"lr"}},
      {"train.patience", {"early_stopping_patience"}},
      {"train.precision", {"amp", "dtype", "mixed_precision"}},
      {"train.precision=bf16", {"bf16"}},
      {"train.precision=fp16", {"fp16"}},
      {"train.recompute", {"gradient_checkpointing"}},
      {"train.schedule", {"decay_lr", "lr_scheduler", "lr_scheduler_type"}},
      {"train.steps", {"iterations", "iters", "max_iters", "max_steps", "num_steps", "total_steps"}},
      {"train.warmup_steps", {"warmup", "warmup_iters"}},
      {"train.weight_decay", {"wd"}},
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
  for (const auto& [key, names] : names_elsewhere())
    if (least != 0 && names.contains(last)) nearest = key;
  return nearest.empty() ? " (--help lists all keys)" : concat(" (did you mean ", nearest, "?)");
}

const ConfigKey& find_config_key(const std::string& name, const std::string& origin) {
  for (const ConfigKey& key : config_schema())
    if (key.name == name) return key;
  throw UserError(concat(origin, ": unknown key ", name, suggest_config_key(name)));
}

}  // namespace lockstep
