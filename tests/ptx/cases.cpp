// SPDX-License-Identifier: Apache-2.0

// Launches every kernel of the project's own in the emulator, which records the launches for the interpreter:
// the cases with predicted bits, and those that allow it again with arrays that are not aligned.

#include "kernels/predicted/cases.h"

#include <cstdio>

#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"

namespace lockstep::predicted {
namespace {

int run_all() {
  require(count_gpus() > 0, why_no_gpu());
  const Stream stream = make_gpu_stream(0);
  const Cases cases = all_cases();
  for (const int64_t shift : {0, 1})
    for (const Case& one : cases) {
      if (shift != 0 && !one.takes_any_address()) continue;
      Arrays arrays(stream, shift);
      one.run(arrays);
    }
  return 0;
}

}  // namespace
}  // namespace lockstep::predicted

int main() {
  try {
    return lockstep::predicted::run_all();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "ptx_cases: %s\n", problem.what());
    return 1;
  }
}
