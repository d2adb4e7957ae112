// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace lockstep {

/// A bucket, and a key or the prefix of keys in it, without slashes at the ends.
struct S3Address {
  std::string bucket;
  std::string key;
};

bool is_s3_address(std::string_view address);
/// Throws UserError unless it is s3://bucket[/key] with a name that a bucket can have.
S3Address parse_s3_address(const std::string& address);

/// Every byte but A-Z a-z 0-9 - . _ ~ as %XX (RFC 3986), as AWS signs it. Slashes stay if `keep_slashes`.
std::string percent_encode(std::string_view text, bool keep_slashes = false);

/// "a=1&b=": sorted and encoded, each with its "=", so that what is signed is what is sent.
std::string canonical_query(const std::map<std::string, std::string>& parameters);

/// Where requests for a bucket go: scheme and host, and the path to put before the key.
struct S3Endpoint {
  std::string host;  ///< "https://bucket.s3.eu-west-1.amazonaws.com"
  std::string path;  ///< "" or "/bucket" (path style)
};

/// `endpoint` is AWS_ENDPOINT_URL: path style. If it is empty, AWS's own in this region: virtual-host style,
/// except for a bucket with dots, which no TLS certificate covers. Throws UserError if it is no http(s) URL.
S3Endpoint s3_endpoint(const std::string& bucket, const std::string& region, const std::string& endpoint);

}  // namespace lockstep
