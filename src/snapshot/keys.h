// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/snapshot/snapshot_options.h"

namespace lockstep {

template <class Options>
class KeyRows;

// The keys of the options.
KeyRows<SnapshotOptions> snapshot_rows();

}  // namespace lockstep
