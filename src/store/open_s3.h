// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "store/object_store.h"
#include "store/retry.h"
#include "store/s3_address.h"

namespace lockstep {

/// Opens the objects below an address, with region and endpoint from the environment. Throws UserError for a
/// wrong setting. Also throws it in a build that has no S3.
std::unique_ptr<ObjectStore> open_s3(const S3Address& address, const RetryPolicy& retries = {});

}  // namespace lockstep
