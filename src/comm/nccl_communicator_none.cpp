// SPDX-License-Identifier: Apache-2.0
// NCCL functions of a build without NCCL.
#include "lockstep/comm/nccl_communicator.h"
#include "lockstep/core/error.h"

namespace lockstep {

int nccl_version() { return 0; }

std::unique_ptr<NcclCommunicator> connect_nccl(Communicator&, int) {
  throw Error("this build has no NCCL: install libnccl-dev and configure again with CUDA");
}

}  // namespace lockstep
