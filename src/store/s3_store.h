// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "store/http.h"
#include "store/object_store.h"
#include "store/s3_address.h"
#include "store/s3_client.h"

namespace lockstep {

/// Opens the objects below an address in a bucket of S3, or of a server that supports its protocol. Without
/// `options` they come from the environment. `may_wait`: whether requests outlast an outage of the server.
/// Throws UserError for a wrong setting, and in a build without S3.
std::unique_ptr<ObjectStore> open_s3(const S3Address& address, const std::optional<S3Options>& options = {},
                                     bool may_wait = true);

/// Downloads an object into a file. Returns the reply: 2xx, 404, or 304 for `headers` that allow it. Throws
/// as open_s3() does.
HttpReply download_from_s3(const S3Address& address, NewFile& file, const RetryPolicy& retries,
                           const std::vector<std::string>& headers);

}  // namespace lockstep
