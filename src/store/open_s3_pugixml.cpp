// SPDX-License-Identifier: Apache-2.0
#include "store/open_s3.h"
#include "store/s3_store.h"

namespace lockstep {

std::unique_ptr<ObjectStore> open_s3(const S3Address& address, const RetryPolicy& retries) {
  S3Options options = S3Options::from_environment();
  options.retries = retries;
  return std::make_unique<S3Store>(address, options);
}

}  // namespace lockstep
