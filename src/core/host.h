// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Returns this machine's host name.
std::string host_name();

/// Returns an id that differs between machines, even with equal host names. A reboot changes it.
std::string boot_id();

/// Returns a text that identifies this process, for use in file names. It is unique across hosts and
/// containers, where process ids may be equal.
const std::string& process_mark();

}  // namespace lockstep
