// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/file.h"
#include "lockstep/store/credentials.h"
#include "lockstep/store/http.h"
#include "lockstep/store/object_store.h"
#include "lockstep/store/s3_address.h"

namespace lockstep {

/// Returns the number in an environment variable, or `otherwise` if it is not set. Throws UserError naming
/// the variable for anything else.
double number_of_variable(const char* variable, double otherwise, int64_t least = 1, int64_t most = 5000);

struct S3Options {
  std::string region = {};
  std::string endpoint = {};   ///< empty: AWS
  std::string ca_bundle = {};  ///< empty: the system's certificates
  size_t part_bytes = size_t{32} << 20;
  double stall_seconds = 20.0;
  RetryPolicy retries = {.outage_seconds = 600.0};

  /// Reads region, endpoint and AWS_CA_BUNDLE like AWS's own tools. Also reads LOCKSTEP_S3_PART_MIB,
  /// LOCKSTEP_S3_STALL_SECONDS and LOCKSTEP_S3_OUTAGE_SECONDS. Throws UserError for a wrong value.
  static S3Options from_environment();
};

struct S3Request {
  std::string method = "GET";
  std::string key = {};  ///< empty: the bucket itself
  std::map<std::string, std::string> query = {};
  std::vector<std::string> headers = {};  ///< "name: value"
  Pieces body = {};
  NewFile* file = nullptr;  ///< receives the body of a successful reply
  /// A part of the object, as in ObjectReader::get(). The reply's body is this part.
  int64_t begin = 0;
  int64_t bytes = ObjectReader::all_bytes;
  int attempts = 0;            ///< at most; 0: as many as an outage of the server takes
  const char* root = nullptr;  ///< the root element of the XML that answers a success; null: no XML
};

/// A client of one bucket, which signs and retries requests.
class S3Client {
 public:
  S3Client(std::string bucket, S3Options options);

  /// Sends a request and returns the reply if its status is 2xx, 304, 404 or 416. A PUT with a condition
  /// (If-Match, If-None-Match) may also be answered with 412 (it does not hold), or with 400, 405 or 501 (the
  /// server knows none). Throws UserError for mistakes of the user (403, no bucket, no credentials); it lists
  /// the tried places. Throws Error if no attempt succeeded.
  HttpReply send(const S3Request& request);

  std::string name_of(const std::string& key) const;
  const S3Options& options() const { return options_; }

 private:
  HttpReply attempt(const S3Request& request, const std::string& body_sha256);
  void judge(const S3Request& request, const HttpReply& reply);
  [[noreturn]] void refuse(const S3Request& request, const HttpReply& reply);

  std::string bucket_;
  S3Options options_;
  CredentialsProvider credentials_;
  HttpClient http_;
};

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
