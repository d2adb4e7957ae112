// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/file.h"
#include "store/object_store.h"
#include "store/retry.h"
#include "store/s3_address.h"

namespace lockstep {

/// Opens the objects below an address, with region and endpoint from the environment. Throws UserError for a
/// wrong setting. Also throws it in a build that has no S3.
std::unique_ptr<ObjectStore> open_s3(const S3Address& address, const RetryPolicy& retries = {});

/// Downloads an object into a file. Returns false if there is no such object. Throws as open_s3() does.
bool download_from_s3(const S3Address& address, NewFile& file, const RetryPolicy& retries);

}  // namespace lockstep
