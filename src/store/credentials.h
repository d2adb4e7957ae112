// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep {

struct Credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  ///< empty for those of a user
  std::string source;         ///< for a person: "the environment (AWS_ACCESS_KEY_ID)"
  std::optional<std::chrono::system_clock::time_point> expires = {};
};

/// AWS_REGION, AWS_DEFAULT_REGION, the profile's region, else us-east-1.
std::string aws_region();

/// AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's endpoint_url; empty: AWS itself.
std::string aws_endpoint();

/// Finds credentials: environment, shared files, container, instance. Keeps them, and renews those that
/// expire five minutes before they do.
class CredentialsProvider {
 public:
  /// Throws UserError that says what was tried, and never a secret.
  const Credentials& current();
  /// They were refused as expired: looks for others. False if there are none.
  bool renew();

 private:
  std::optional<Credentials> found_;
};

}  // namespace lockstep
