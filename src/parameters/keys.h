// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/parameters/update_options.h"

namespace lockstep {

template <class Options>
class KeyRows;

// The keys of the options.
KeyRows<ScheduleOptions> schedule_rows();
KeyRows<OptimizerOptions> optimizer_rows();

}  // namespace lockstep
