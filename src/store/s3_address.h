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
/// Parses an address. Throws UserError unless it is s3://bucket[/key] with a name that a bucket can have.
S3Address parse_s3_address(const std::string& address);

/// Encodes every byte but A-Z a-z 0-9 - . _ ~ (and / with `keep_slashes`) as %XX (RFC 3986), as AWS signs it.
std::string percent_encode(std::string_view text, bool keep_slashes = false);

/// Returns parameters as "a=1&b=": sorted, encoded, each with its "=". So the signed text is the sent one.
std::string canonical_query(const std::map<std::string, std::string>& parameters);

/// The address of requests for a bucket: scheme and host, and the path before the key.
struct S3Endpoint {
  std::string host;  ///< "https://bucket.s3.eu-west-1.amazonaws.com"
  std::string path;  ///< "" or "/bucket" (path style)
};

/// Returns the endpoint of a bucket. `endpoint` is AWS_ENDPOINT_URL, which uses path style. If it is empty,
/// AWS's endpoint in this region is used in virtual-host style. A bucket with dots uses path style, because
/// no TLS certificate covers its host. Throws UserError if `endpoint` is not an http(s) URL.
S3Endpoint s3_endpoint(const std::string& bucket, const std::string& region, const std::string& endpoint);

}  // namespace lockstep
