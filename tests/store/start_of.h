// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/store/owner.h"

namespace lockstep {

/// Returns this process as the owner of a start of a run.
inline Owner start_of(const std::string& run, int64_t generation = 0) {
  Owner owner = Owner::this_process();
  owner.run = run;
  owner.generation = generation;
  return owner;
}

}  // namespace lockstep
