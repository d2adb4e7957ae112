// SPDX-License-Identifier: Apache-2.0
#include "train/early_stopping.h"

#include <cmath>

#include "core/error.h"
#include "core/text.h"

namespace lockstep {

void EarlyStopping::judge(int64_t step, double loss) {
  const bool is_better = std::isfinite(loss) && (!record.best_loss || loss < *record.best_loss - min_delta);
  if (is_better)
    record = {.best_loss = loss, .best_step = step, .since_best = 0};
  else
    ++record.since_best;
}

std::string EarlyStopping::reason() const {
  if (!is_over()) return "";
  const std::string since = counted(record.since_best, "validation");
  return record.best_loss ? concat("stopped early: no better validation loss than ", *record.best_loss,
                                   " after step ", record.best_step, " in ", since)
                          : concat("stopped early: no finite validation loss in ", since);
}

}  // namespace lockstep
