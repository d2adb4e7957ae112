// SPDX-License-Identifier: Apache-2.0
#include "store/credentials.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "store/environment.h"

namespace lockstep {
namespace {

using Profile = std::map<std::string, std::string>;

constexpr auto renewal_margin = std::chrono::minutes(5);

std::string shared_file(const char* variable, const char* name) {
  const std::string path = environment(variable);
  return path.empty() ? concat(environment("HOME"), "/.aws/", name) : path;
}

/// Adds the keys of one section of an INI file. True if it has the section.
bool read_section(const std::string& path, const std::string& section, Profile& keys) {
  std::ifstream file(path);
  bool is_inside = false;
  bool found = false;
  for (std::string line; std::getline(file, line);) {
    // Indented lines belong to nested settings, which none of our keys is.
    const bool is_nested = line.starts_with(' ') || line.starts_with('\t');
    line = trimmed(line);
    if (line.empty() || line.starts_with('#') || line.starts_with(';') || is_nested) continue;
    if (line.starts_with('[')) {
      is_inside = trimmed(line.substr(1, line.find(']') - 1)) == section;
      found |= is_inside;
      continue;
    }
    const size_t equals = line.find('=');
    if (is_inside && equals != std::string::npos)
      keys[trimmed(line.substr(0, equals))] = trimmed(line.substr(equals + 1));
  }
  return found;
}

std::string value_of(const Profile& profile, const std::string& key) {
  const auto found = profile.find(key);
  return found == profile.end() ? "" : found->second;
}

std::string profile_name() {
  const std::string name = environment("AWS_PROFILE");
  return name.empty() ? "default" : name;
}

std::optional<Credentials> environment_credentials(std::string& tried) {
  Credentials credentials{.access_key = environment("AWS_ACCESS_KEY_ID"),
                          .secret_key = environment("AWS_SECRET_ACCESS_KEY"),
                          .session_token = environment("AWS_SESSION_TOKEN"),
                          .source = "the environment (AWS_ACCESS_KEY_ID)",
                          .expires = {}};
  if (!credentials.access_key.empty() && !credentials.secret_key.empty()) return credentials;
  tried += "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not both set";
  return std::nullopt;
}

std::optional<Credentials> profile_credentials(std::string& tried) {
  const Profile profile = read_aws_profile();
  Credentials credentials{.access_key = value_of(profile, "aws_access_key_id"),
                          .secret_key = value_of(profile, "aws_secret_access_key"),
                          .session_token = value_of(profile, "aws_session_token"),
                          .source = concat("profile ", profile_name(), " in ",
                                           shared_file("AWS_SHARED_CREDENTIALS_FILE", "credentials")),
                          .expires = {}};
  if (!credentials.access_key.empty() && !credentials.secret_key.empty()) return credentials;
  tried += concat("; profile ", profile_name(), " holds no keys in ",
                  shared_file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), " or ",
                  shared_file("AWS_CONFIG_FILE", "config"));
  const bool needs_a_login = std::any_of(profile.begin(), profile.end(), [](const auto& entry) {
    return entry.first.starts_with("sso_") || entry.first == "role_arn" ||
           entry.first == "credential_process";
  });
  if (needs_a_login) tried += " (sso, roles and processes: `aws configure export-credentials --format env`)";
  return std::nullopt;
}

}  // namespace

std::map<std::string, std::string> read_aws_profile() {
  const std::string name = profile_name();
  Profile keys;
  const bool in_configuration = read_section(shared_file("AWS_CONFIG_FILE", "config"),
                                             name == "default" ? name : "profile " + name, keys);
  const bool in_credentials =
      read_section(shared_file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), name, keys);
  require(in_configuration || in_credentials || environment("AWS_PROFILE").empty(), "AWS_PROFILE = ", name,
          ", but there is no such profile in ", shared_file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
          " or ", shared_file("AWS_CONFIG_FILE", "config"));
  return keys;
}

std::string aws_region() {
  for (const char* variable : {"AWS_REGION", "AWS_DEFAULT_REGION"})
    if (std::string region = environment(variable); !region.empty()) return region;
  const std::string region = value_of(read_aws_profile(), "region");
  return region.empty() ? "us-east-1" : region;
}

std::string aws_endpoint() {
  for (const char* variable : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"})
    if (std::string endpoint = environment(variable); !endpoint.empty()) return endpoint;
  return value_of(read_aws_profile(), "endpoint_url");
}

const Credentials& CredentialsProvider::current() {
  const bool is_fresh =
      found_ && (!found_->expires || std::chrono::system_clock::now() + renewal_margin < *found_->expires);
  if (is_fresh) return *found_;
  std::string tried;
  std::optional<Credentials> found = environment_credentials(tried);
  if (!found) found = profile_credentials(tried);
  if (!found) found = container_credentials(tried);
  if (!found) found = instance_credentials(tried);
  // A metadata service that is down for a moment does not end what still has some minutes.
  const bool still_valid = found_ && found_->expires && std::chrono::system_clock::now() < *found_->expires;
  require(found || still_valid, "no credentials for S3 were found: ", tried);
  if (found) found_ = std::move(found);
  return *found_;
}

bool CredentialsProvider::renew() {
  if (!found_) return false;
  const Credentials before = *std::exchange(found_, std::nullopt);
  if (before.expires) return true;
  // Whoever writes the shared file may have put others there.
  const Credentials& now = current();
  return now.access_key != before.access_key || now.session_token != before.session_token;
}

}  // namespace lockstep
