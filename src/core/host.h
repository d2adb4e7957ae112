// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Returns this machine's host name.
std::string host_name();

/// Returns an id that differs between machines, even with equal host names. A reboot changes it.
std::string boot_id();

/// Returns this process's mark for file names: unique across hosts and containers with equal process ids.
const std::string& process_mark();

}  // namespace lockstep
