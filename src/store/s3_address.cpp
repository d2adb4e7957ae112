// SPDX-License-Identifier: Apache-2.0
#include "lockstep/store/s3_address.h"

#include <algorithm>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr std::string_view scheme = "s3://";

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

bool is_bucket_name(std::string_view name) {
  // Allows the names that AWS allows now. Older buckets and other servers also have underscores and capitals.
  const auto may_hold = [](char c) { return is_unreserved(c) && c != '~'; };
  return name.size() >= 3 && name.size() <= 255 && std::ranges::all_of(name, may_hold);
}

std::string without_slashes(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  text.erase(0, std::min(text.find_first_not_of('/'), text.size()));
  return text;
}

/// Returns whether a name between slashes is "." or "..".
bool has_dot_segment(const std::string& key) {
  const std::string path = concat("/", key, "/");
  return path.find("/./") != std::string::npos || path.find("/../") != std::string::npos;
}

}  // namespace

bool is_s3_address(std::string_view address) { return address.starts_with(scheme); }

S3Address parse_s3_address(const std::string& address) {
  require(is_s3_address(address), address, " is not an s3://bucket/prefix address");
  const std::string rest = address.substr(scheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  S3Address parsed{.bucket = rest.substr(0, slash), .key = without_slashes(rest.substr(slash))};
  require(is_bucket_name(parsed.bucket), address, ": \"", parsed.bucket,
          "\" is not the name of a bucket; write s3://bucket/prefix");
  // libcurl removes such names from paths. Since version 8 it refuses to sign a path that keeps them.
  require(!has_dot_segment(parsed.key), address,
          ": \".\" and \"..\" are not folders in a bucket; remove them");
  return parsed;
}

std::string percent_encode(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    if (is_unreserved(c) || (keep_slashes && c == '/')) {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += {'%', "0123456789ABCDEF"[byte >> 4], "0123456789ABCDEF"[byte & 15]};
    }
  }
  return encoded;
}

std::string canonical_query(const std::map<std::string, std::string>& parameters) {
  std::string query;
  for (const auto& [name, value] : parameters)
    query += concat(query.empty() ? "" : "&", percent_encode(name), "=", percent_encode(value));
  return query;
}

S3Endpoint s3_endpoint(const std::string& bucket, const std::string& region, const std::string& endpoint) {
  const std::string in_path = "/" + bucket;
  if (!endpoint.empty()) {
    require(endpoint.starts_with("https://") || endpoint.starts_with("http://"),
            "AWS_ENDPOINT_URL = ", endpoint, " is not an http:// or https:// address");
    return {.host = endpoint.substr(0, endpoint.find_last_not_of('/') + 1), .path = in_path};
  }
  const std::string domain = region.starts_with("cn-") ? ".amazonaws.com.cn" : ".amazonaws.com";
  const std::string service = concat("s3.", region, domain);
  // A host name cannot have capitals or underscores either.
  const bool fits_host = std::ranges::all_of(
      bucket, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
  if (fits_host) return {.host = concat("https://", bucket, ".", service), .path = ""};
  return {.host = "https://" + service, .path = in_path};
}

}  // namespace lockstep
