// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// What this machine calls itself.
std::string host_name();

/// Tells this machine from others, whatever they are called, until it is started again.
std::string boot_id();

/// Tells this process from others for names of files, also from those of other hosts and containers, whose
/// numbers may be equal.
const std::string& process_mark();

}  // namespace lockstep
