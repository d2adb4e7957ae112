// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Whether this process is to say why it fails: of the ranks of one launch on this host that say the same,
/// the first is, until it ends. Needs no MPI, which may not have been started, and leaves nothing behind.
bool claim_message(const std::string& message);

}  // namespace lockstep
