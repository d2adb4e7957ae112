// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

/// How many files and connections this process may have open.
size_t descriptor_limit();

/// Raises the limit to many more than are needed, as far as the system allows. UserError if that is too few:
/// `whose` ("4 ranks") need so many, and what to raise.
void provide_descriptors(size_t needed, const std::string& whose);

}  // namespace lockstep
