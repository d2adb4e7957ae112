// SPDX-License-Identifier: Apache-2.0
// Refuses every address in a build without pugixml.
#include "lockstep/core/error.h"
#include "lockstep/store/bucket_lease.h"
#include "lockstep/store/s3_client.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const S3Address& address) {
  throw UserError(concat(
      "s3://", address.bucket,
      ": this build has no pugixml, which S3 needs: configure with LOCKSTEP_PUGIXML=ON (docs/install.md)"));
}

}  // namespace

std::unique_ptr<ObjectStore> open_s3(const S3Address& address, const std::optional<S3Options>&, bool) {
  refuse(address);
}

LeaseTerms LeaseTerms::from_environment() { return {}; }

BucketLease::BucketLease(std::string, const S3Address& prefix, Owner, LeaseTerms,
                         const std::optional<S3Options>&)
    : client_(prefix.bucket, {}) {
  refuse(prefix);
}
BucketLease::~BucketLease() = default;
void BucketLease::check() {}
void BucketLease::check_recently() const {}

S3Client::S3Client(std::string, S3Options) {}

HttpReply download_from_s3(const S3Address& address, NewFile&, const RetryPolicy&,
                           const std::vector<std::string>&) {
  refuse(address);
}

}  // namespace lockstep
