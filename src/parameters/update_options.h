// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

enum class Schedule { cosine, wsd, constant };

/// The learning rate of each step. --help gives meanings, ranges and units.
struct ScheduleOptions {
  double learning_rate = 1e-3;
  int64_t warmup_steps = 0;
  double min_lr = 0.0;
  int64_t decay_steps = 0;
  Schedule schedule = Schedule::cosine;
  int64_t cooldown_steps = 0;
};

/// How AdamW updates which parameters. --help gives meanings, ranges and units.
struct OptimizerOptions {
  double weight_decay = 0.1;
  std::string freeze;
  std::string groups;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double grad_clip = 1.0;
};

}  // namespace lockstep
