// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "comm/world.h"
#include "plan/memory_advice.h"
#include "train/language_model.h"
#include "train/language_task.h"

namespace lockstep {

/// A task with its model.
struct PlannedTask {
  PlannedTask(const Job& job, const LanguageData& data)
      : model(make_model(job, data.vocabulary_size)), task(job, *model, data) {}

  std::unique_ptr<LanguageModel> model;
  LanguageTask task;
};

/// Returns a planner for trainings like `job` on `data`, which it refers to. All ranks call it.
Planner language_planner(const Job& job, const World& world, const LanguageData& data);

}  // namespace lockstep
