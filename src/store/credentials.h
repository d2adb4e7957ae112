// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct Credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  ///< empty for the keys of a user
  std::string source;         ///< for messages: "the environment (AWS_ACCESS_KEY_ID)"
  std::optional<std::chrono::system_clock::time_point> expires = {};
};

/// Returns AWS_REGION, AWS_DEFAULT_REGION or the profile's region, the first that is set; else us-east-1.
std::string aws_region();

/// Returns AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the profile's endpoint_url; empty: AWS itself.
std::string aws_endpoint();

/// A provider that searches for credentials in the environment, shared files, the container and the instance.
/// It keeps them, and renews expiring ones five minutes before they expire.
class CredentialsProvider {
 public:
  /// Returns valid credentials. Throws UserError that lists what was tried, and never a secret. Throws
  /// TransientError if credentials of before have expired, or if the container's service does not answer.
  const Credentials& current();
  /// Searches for others after the server refused these as expired. Returns false if there are none.
  bool renew();

 private:
  std::optional<Credentials> found_;
};

/// A request as it is sent.
struct S3Signed {
  std::string method;
  std::string host;                       ///< with the port, if the address has one
  std::string path;                       ///< percent-encoded once, from "/" on
  std::string query = {};                 ///< canonical_query()
  std::vector<std::string> headers = {};  ///< "name: value"; all are signed
  std::string body_sha256;                ///< in hexadecimal digits
};

/// Returns the request's headers and those that sign it by AWS Signature Version 4. The signing headers are
/// host, x-amz-content-sha256, x-amz-date, authorization and that of a session token. libcurl's versions sign
/// paths and queries differently. Source: "Signature Calculations for the Authorization Header" in Amazon
/// S3's API reference.
std::vector<std::string> sign_s3(const Credentials& credentials, const std::string& region,
                                 const S3Signed& request, std::time_t now);

}  // namespace lockstep
