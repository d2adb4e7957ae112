// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace lockstep {

/// How many files and connections this process may have open.
size_t descriptor_limit();

/// Raises the limit for `ranks` ranks, `here` of which mpirun starts on this host: to many more than they
/// need, as far as the system allows. UserError if that is too few, saying what to raise.
void provide_descriptors(int ranks, int here);

}  // namespace lockstep
