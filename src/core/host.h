// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// What this machine calls itself.
std::string host_name();

}  // namespace lockstep
