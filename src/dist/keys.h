// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/dist/dist_options.h"

namespace lockstep {

template <class Options>
class KeyRows;

// The keys of the options.
KeyRows<DistOptions> dist_rows();

}  // namespace lockstep
