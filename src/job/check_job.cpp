// SPDX-License-Identifier: Apache-2.0
#include "job/check_job.h"

#include "core/error.h"
#include "core/gpu.h"

namespace lockstep {
namespace {

/// Returns whether a text is given that is empty.
template <class Named>
bool is_empty(const std::variant<Named, std::string>& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr && text->empty();
}

void check_schedule(const Job& job, const Settings& settings) {
  const ScheduleOptions& schedule = job.schedule;
  const int64_t steps = job.length.steps, warmup = schedule.warmup_steps, decay = schedule.decay_steps;
  require(schedule.min_lr <= schedule.learning_rate, "train.min_lr = ", schedule.min_lr,
          " is above train.learning_rate = ", schedule.learning_rate,
          "; lower train.min_lr or raise train.learning_rate");
  require(steps == 0 || decay > 0 || warmup <= steps, "train.warmup_steps = ", warmup,
          " is more than train.steps = ", steps, ", the length of the run; lower train.warmup_steps");
  require(decay == 0 || warmup <= decay, "train.warmup_steps = ", warmup,
          " is more than train.decay_steps = ", decay, "; lower train.warmup_steps");
  require(schedule.cooldown_steps == 0 || schedule.schedule == Schedule::wsd,
          "train.cooldown_steps = ", schedule.cooldown_steps, " needs train.schedule = wsd, not ",
          settings["train.schedule"]);
  require(decay == 0 || warmup + schedule.cooldown_steps <= decay, "train.warmup_steps = ", warmup,
          " and train.cooldown_steps = ", schedule.cooldown_steps,
          " are together more than train.decay_steps = ", decay, "; lower one of them");
}

}  // namespace

void check_together(const Job& job, const Settings& settings) {
  const auto& [steps, epochs] = job.length;
  const auto& [batch_size, accumulate] = job.batches;
  const ModelOptions& model = job.model;
  const ValidationOptions& validation = job.validation;
  require(steps == 0 || epochs == 0, "train.steps = ", steps, " and train.epochs = ", epochs,
          " both set the length of the run; set one of them to 0");
  require(steps > 0 || epochs > 0, "neither train.steps nor train.epochs is set; set one of them");
  require(model.n_embd % model.n_head == 0, "model.n_embd = ", model.n_embd,
          " is not a multiple of model.n_head = ", model.n_head, "; change one of them");
  // The sizes of model.from are not known yet.
  const bool is_sized = model.from.empty() || settings.is_set("model.n_layer");
  require(!is_sized || job.compute.recompute.segments <= model.n_layer,
          "train.recompute = ", settings["train.recompute"],
          " asks for more segments than model.n_layer = ", model.n_layer,
          " blocks; choose at most one segment per block, or train.recompute = block");
  require(model.n_positions == 0 || job.text.block_size <= model.n_positions,
          "data.block_size = ", job.text.block_size, " is more than model.n_positions = ", model.n_positions,
          "; lower data.block_size or raise model.n_positions");
  check_schedule(job, settings);
  require(batch_size % accumulate == 0, "train.batch_size = ", batch_size,
          " is not a multiple of train.accumulate = ", accumulate, "; change one of them");
  require(validation.patience == 0 || validation.eval_every > 0, "train.patience = ", validation.patience,
          " needs validations during the run; set train.eval_every above 0, not ", validation.eval_every);
  require(!is_empty(job.text.dataset),
          "data.dataset is empty; set the name of a data set or the path of a text file");
  require(!is_empty(job.text.tokenizer),
          "data.tokenizer is empty; set auto, char or the path of a tokenizer");
  require(job.snapshots.resume != Resume::required || !job.snapshot_place().empty(),
          "snapshot.resume = required needs snapshots, but snapshot.path = none; set snapshot.path");
}

Device chosen_device(const Job& job) {
  const std::optional<Device> wanted = job.compute.device;
  const bool has_gpu = wanted != Device::cpu && count_gpus() > 0;
  require(wanted != Device::cuda || has_gpu, "train.device = cuda: ", why_no_gpu(), "; or set auto or cpu");
  if (!has_gpu) return Device::cpu;
  const DType precision = job.compute.precision;
  const int64_t head = job.model.n_embd / job.model.n_head;
  require(head <= 128 && (precision == DType::f32 || head % 8 == 0), "model.n_embd / model.n_head = ", head,
          " channels per head; a GPU needs at most 128 and, in ", precision_name(precision),
          ", a multiple of 8; change them, or set train.device = cpu");
  return Device::cuda;
}

void require_sharding(const Job& job, int ranks) {
  const DistOptions& dist = job.dist;
  require(dist.shard == Shard::none || dist.reduction == Reduction::tree, "dist.shard = ", name(dist.shard),
          " needs dist.reduction = tree: each rank adds the gradients that it owns in the tree's order");
  require(dist.offload == Offload::none || dist.reduction == Reduction::tree,
          "dist.offload = ", name(dist.offload),
          " needs dist.reduction = tree: each rank updates the offloaded values that it owns");
  const Shard stage = stage_with(dist.shard, dist.offload);
  require(!job.compute.tune_matmul || (stage != Shard::gradients && stage != Shard::full),
          "train.tune_matmul runs the whole model on rank 0, but ",
          dist.offload == Offload::all ? "dist.offload = all" : concat("dist.shard = ", name(dist.shard)),
          " is meant to avoid that: remove one of the two");
  check_group(dist.shard, ranks, dist.group, dist.offload);
}

}  // namespace lockstep
