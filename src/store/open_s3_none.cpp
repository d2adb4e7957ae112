// SPDX-License-Identifier: Apache-2.0
// Refuses every address in a build without pugixml.
#include "core/error.h"
#include "store/open_s3.h"

namespace lockstep {

std::unique_ptr<ObjectStore> open_s3(const S3Address& address, const RetryPolicy&) {
  throw UserError(concat(
      "s3://", address.bucket,
      ": this build has no pugixml, which S3 needs: configure with LOCKSTEP_PUGIXML=ON (docs/install.md)"));
}

}  // namespace lockstep
