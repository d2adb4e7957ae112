// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/keys.h"

#include "lockstep/config/rows.h"

namespace lockstep {

KeyRows<ScheduleOptions> schedule_rows() {
  using O = ScheduleOptions;
  constexpr auto semantic = KeyClass::semantic;
  KeyRows<O> rows("train", "Learning rate");
  rows.add("learning_rate", &O::learning_rate, semantic, at_least(0), "",
           "highest learning rate, reached after the warm-up")
      .first()
      .also_called({"lr"});
  rows.add("warmup_steps", &O::warmup_steps, semantic, at_least(0), "steps",
           "steps in which the learning rate rises linearly")
      .also_called({"warmup", "warmup_iters"});
  rows.add("min_lr", &O::min_lr, semantic, at_least(0), "", "final learning rate, kept after the decay");
  // The folder of the run gives a start that leaves it open the value of the snapshot, and logs that.
  rows.add("decay_steps", &O::decay_steps, semantic, at_least(0), "steps",
           "step at which the decay ends; 0: the last step that the first start of the run planned")
      .inherited(false)
      .open_at("0")
      .also_called({"lr_decay_iters"});
  rows.add("schedule", &O::schedule,
           {{"cosine", Schedule::cosine}, {"wsd", Schedule::wsd}, {"constant", Schedule::constant}}, semantic,
           "after the warm-up: cosine decays along a cosine; wsd (warm-up, stable, decay) stays constant and "
           "then decays linearly; constant stays")
      .also_called({"decay_lr", "lr_scheduler", "lr_scheduler_type"});
  rows.add("cooldown_steps", &O::cooldown_steps, semantic, at_least(0), "steps",
           "wsd only: steps of the linear decay, which ends at train.decay_steps; 0: a tenth of decay_steps");
  return rows;
}

KeyRows<OptimizerOptions> optimizer_rows() {
  using O = OptimizerOptions;
  constexpr auto semantic = KeyClass::semantic;
  KeyRows<O> rows("train", "Optimizer");
  rows.add("weight_decay", &O::weight_decay, semantic, at_least(0), "",
           "decoupled weight decay (AdamW), of matrices only")
      .also_called({"wd"});
  rows.add(
      "freeze", &O::freeze, semantic,
      "parameters that are not trained: patterns of names, separated by commas, such as transformer.wte.*, "
      "transformer.h.0.*");
  rows.add("groups", &O::groups, semantic,
           "parameter groups with own settings, separated by commas: PATTERN lr_factor=K weight_decay=K. "
           "lr_factor multiplies the learning rate");
  rows.add("beta1", &O::beta1, semantic, unit_interval, "", "AdamW: decay of the first moment")
      .also_called({"adam_beta1"});
  rows.add("beta2", &O::beta2, semantic, unit_interval, "", "AdamW: decay of the second moment")
      .also_called({"adam_beta2"});
  rows.add("grad_clip", &O::grad_clip, semantic, at_least(0), "",
           "largest norm of the gradient; a longer gradient is scaled down to it; 0: no clipping")
      .also_called({"clip_grad", "clip_grad_norm", "gradient_clip", "max_grad_norm"});
  return rows;
}

}  // namespace lockstep
