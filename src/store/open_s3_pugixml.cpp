// SPDX-License-Identifier: Apache-2.0
#include "store/open_s3.h"
#include "store/s3_client.h"
#include "store/s3_store.h"

namespace lockstep {
namespace {

S3Options options_with(const RetryPolicy& retries) {
  S3Options options = S3Options::from_environment();
  options.retries = retries;
  return options;
}

}  // namespace

std::unique_ptr<ObjectStore> open_s3(const S3Address& address, const RetryPolicy& retries) {
  return std::make_unique<S3Store>(address, options_with(retries));
}

bool download_from_s3(const S3Address& address, NewFile& file, const RetryPolicy& retries) {
  S3Client client(address.bucket, options_with(retries));
  return client.send({.key = address.key, .file = &file}).status != 404;
}

}  // namespace lockstep
