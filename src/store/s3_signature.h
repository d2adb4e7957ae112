// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "store/credentials.h"

namespace lockstep {

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
