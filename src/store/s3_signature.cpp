// SPDX-License-Identifier: Apache-2.0
#include "store/s3_signature.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "store/sha256.h"

namespace lockstep {
namespace {

constexpr const char* algorithm = "AWS4-HMAC-SHA256";

std::string utc(std::time_t time, const char* format) {
  std::tm fields{};
  ::gmtime_r(&time, &fields);
  char text[32];
  return {text, std::strftime(text, sizeof text, format, &fields)};
}

/// Returns the values by name, sorted, with names in lower case.
std::map<std::string, std::string> by_name(const std::vector<std::string>& headers) {
  std::map<std::string, std::string> values;
  for (const std::string& header : headers) {
    const size_t colon = std::min(header.find(':'), header.size());
    values[lower_case(header.substr(0, colon))] = trimmed(header.substr(std::min(colon + 1, header.size())));
  }
  return values;
}

/// Returns the signing key for one day, region and service.
std::string signing_key(const std::string& secret_key, const std::string& day, const std::string& region) {
  std::string key = "AWS4" + secret_key;
  for (const std::string& part : {day, region, std::string("s3"), std::string("aws4_request")})
    key = hmac_sha256(key, part);
  return key;
}

}  // namespace

std::vector<std::string> sign_s3(const Credentials& credentials, const std::string& region,
                                 const S3Signed& request, std::time_t now) {
  const std::string day = utc(now, "%Y%m%d"), time = utc(now, "%Y%m%dT%H%M%SZ");
  std::vector<std::string> headers = request.headers;
  if (!credentials.session_token.empty())
    headers.push_back("x-amz-security-token: " + credentials.session_token);
  headers.push_back("host: " + request.host);
  headers.push_back("x-amz-content-sha256: " + request.body_sha256);
  headers.push_back("x-amz-date: " + time);
  std::string names, lines;
  for (const auto& [name, value] : by_name(headers)) {
    names += concat(names.empty() ? "" : ";", name);
    lines += concat(name, ":", value, "\n");
  }
  const std::string canonical = concat(request.method, "\n", request.path, "\n", request.query, "\n", lines,
                                       "\n", names, "\n", request.body_sha256);
  const std::string scope = concat(day, "/", region, "/s3/aws4_request");
  const std::string to_sign = concat(algorithm, "\n", time, "\n", scope, "\n", sha256(canonical));
  const std::string key = signing_key(credentials.secret_key, day, region);
  headers.push_back(concat("authorization: ", algorithm, " Credential=", credentials.access_key, "/", scope,
                           ", SignedHeaders=", names,
                           ", Signature=", hexadecimal(hmac_sha256(key, to_sign))));
  return headers;
}

}  // namespace lockstep
