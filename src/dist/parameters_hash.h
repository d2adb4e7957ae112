// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/dist/data_parallel.h"

namespace lockstep {

/// Returns the XXH3-64 (seed 0) of the parameters in ASCII order of their names. Each parameter contributes
/// the bytes of its name, a zero byte, every extent as int64 and the elements as stored (fp32 masters). All
/// numbers are little-endian. A tensor with several names (a tied weight) counts once, under its first name.
uint64_t parameters_hash(std::vector<NamedTensor> parameters);
/// Returns the parameters_hash() of a model whose values may be sharded over the ranks. All ranks call it.
uint64_t parameters_hash(const ParameterSpace& space, DataParallel& data_parallel);

}  // namespace lockstep
