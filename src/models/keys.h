// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/models/model_options.h"

namespace lockstep {

template <class Options>
class KeyRows;

/// Returns the rows that all families have, then those of each family. A key of several families is one row.
/// The first row is model.family.
KeyRows<ModelOptions> model_rows();

}  // namespace lockstep
