// SPDX-License-Identifier: Apache-2.0
#include "lockstep/store/credentials.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/json/json_field.h"
#include "lockstep/store/http.h"
#include "lockstep/store/sha256.h"

namespace lockstep {
namespace {

using Profile = std::map<std::string, std::string>;

constexpr auto renewal_margin = std::chrono::minutes(5);

std::string shared_file(const char* variable, const char* name) {
  const std::string path = environment(variable);
  return path.empty() ? concat(environment("HOME"), "/.aws/", name) : path;
}

std::string configuration_file() { return shared_file("AWS_CONFIG_FILE", "config"); }
std::string credentials_file() { return shared_file("AWS_SHARED_CREDENTIALS_FILE", "credentials"); }

/// Adds the keys of one section of an INI file. Returns whether the file has the section.
bool read_section(const std::string& path, const std::string& section, Profile& keys) {
  std::ifstream file(path);
  bool is_inside = false;
  bool found = false;
  for (std::string line; std::getline(file, line);) {
    // Indented lines belong to nested settings. The keys read here are never nested.
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

std::string profile_name() {
  const std::string name = environment("AWS_PROFILE");
  return name.empty() ? "default" : name;
}

std::optional<Credentials> environment_credentials(std::string& tried) {
  Credentials credentials{.access_key = environment("AWS_ACCESS_KEY_ID"),
                          .secret_key = environment("AWS_SECRET_ACCESS_KEY"),
                          .session_token = environment("AWS_SESSION_TOKEN"),
                          .source = "the environment (AWS_ACCESS_KEY_ID)"};
  if (!credentials.access_key.empty() && !credentials.secret_key.empty()) return credentials;
  tried += "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not both set";
  return std::nullopt;
}

/// Returns the keys of a profile (AWS_PROFILE, else "default") in AWS's shared files, if it exists. The
/// credentials file overrides the configuration. Throws UserError if AWS_PROFILE names a missing profile.
Profile read_aws_profile() {
  const std::string name = profile_name();
  Profile keys;
  const bool in_configuration =
      read_section(configuration_file(), name == "default" ? name : "profile " + name, keys);
  const bool in_credentials = read_section(credentials_file(), name, keys);
  require(in_configuration || in_credentials || environment("AWS_PROFILE").empty(), "AWS_PROFILE = ", name,
          ", but there is no such profile in ", credentials_file(), " or ", configuration_file());
  return keys;
}

std::optional<Credentials> profile_credentials(std::string& tried) {
  Profile profile = read_aws_profile();
  Credentials credentials{.access_key = profile["aws_access_key_id"],
                          .secret_key = profile["aws_secret_access_key"],
                          .session_token = profile["aws_session_token"],
                          .source = concat("profile ", profile_name(), " in ", credentials_file())};
  if (!credentials.access_key.empty() && !credentials.secret_key.empty()) return credentials;
  tried += concat("; profile ", profile_name(), " holds no keys in ", credentials_file(), " or ",
                  configuration_file());
  const bool needs_a_login = std::ranges::any_of(profile, [](const auto& entry) {
    return entry.first.starts_with("sso_") || entry.first == "role_arn" ||
           entry.first == "credential_process";
  });
  if (needs_a_login) tried += " (sso, roles and processes: `aws configure export-credentials --format env`)";
  return std::nullopt;
}

constexpr const char* container_service = "http://169.254.170.2";
constexpr const char* instance_service = "http://169.254.169.254";
constexpr const char* token_path = "/latest/api/token";
constexpr const char* roles_path = "/latest/meta-data/iam/security-credentials/";
constexpr RetryPolicy metadata_retries{.attempts = 2};
constexpr size_t most_reply_bytes = 64 << 10;

std::string ask(HttpClient& client, HttpRequest request) {
  // The service is local or absent: short deadlines suffice, and no proxy is between.
  request.may_use_proxy = false;
  request.connect_seconds = 1.0;
  request.total_seconds = 2.0;
  const HttpReply reply = client.perform(request);
  if (reply.is_busy()) throw TransientError(concat("answered ", reply.status));
  expect(reply.status == 200, "answered ", reply.status);
  return reply.body;
}

std::chrono::system_clock::time_point parse_time(const std::string& text) {
  std::tm time{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  expect(end != nullptr, "answered with an invalid time");
  // A clock in nanoseconds ends in the year 2262. Half of that is late enough, and leaves room for a margin.
  const auto last = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::duration(std::chrono::system_clock::duration::max() / 2));
  const std::chrono::seconds seconds(::timegm(&time));
  return std::chrono::system_clock::time_point(std::clamp(seconds, std::chrono::seconds(0), last));
}

Credentials parse_credentials(const std::string& reply, const std::string& source) {
  const JsonField<nlohmann::json> json = [&] {
    try {
      return JsonField<nlohmann::json>(reply, "the answer", most_reply_bytes);
    } catch (const UserError&) {
      // The message could quote the answer, which contains the secret.
      throw Error("answered without JSON");
    }
  }();
  const auto text = [&](const char* key) {
    return json.has(key) && json[key].json().is_string() ? json[key].text() : "";
  };
  Credentials credentials{.access_key = text("AccessKeyId"),
                          .secret_key = text("SecretAccessKey"),
                          .session_token = text("Token"),
                          .source = source,
                          .expires = parse_time(text("Expiration"))};
  expect(!credentials.access_key.empty() && !credentials.secret_key.empty(), "answered without keys");
  return credentials;
}

/// Returns whether credentials may be requested from a URL: no other host of the network can impersonate it.
bool is_trusted(const std::string& url) {
  if (url.starts_with("https://")) return true;
  constexpr std::array hosts = {"127.0.0.1",     "localhost",      "[::1]",
                                "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
  return url.starts_with("http://") && std::ranges::count(hosts, host_of_url(url)) > 0;
}

std::string container_authorization() {
  const std::string path = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (path.empty()) return environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  std::string token;
  std::getline(std::ifstream(path), token);
  require(!token.empty(), "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE = ", path, " cannot be read");
  return token;
}

Credentials ask_instance(HttpClient& client, const std::string& service) {
  const std::string token = ask(client, {.method = "PUT",
                                         .url = service + token_path,
                                         .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"}});
  const std::vector<std::string> headers = {"X-aws-ec2-metadata-token: " + token};
  const std::string roles = ask(client, {.url = service + roles_path, .headers = headers});
  const std::string role = roles.substr(0, roles.find('\n'));
  const std::string reply = ask(client, {.url = service + roles_path + role, .headers = headers});
  return parse_credentials(reply, concat("the instance's role ", role));
}

/// Returns credentials from a container's metadata service. Returns nothing if the environment names no
/// service, or if it refused. For a refusal, appends the service and the reason to `tried`. Throws
/// TransientError if the service does not answer.
std::optional<Credentials> container_credentials(std::string& tried) {
  const std::string relative = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string url =
      relative.empty() ? environment("AWS_CONTAINER_CREDENTIALS_FULL_URI") : container_service + relative;
  if (url.empty()) return std::nullopt;
  require(is_trusted(url), "AWS_CONTAINER_CREDENTIALS_FULL_URI = ", url,
          " is neither https nor a container's own host");
  HttpRequest request{.url = url};
  const std::string authorization = container_authorization();
  if (!authorization.empty()) request.headers.push_back("Authorization: " + authorization);
  const std::string service = concat("the container's service ", url, ": ");
  try {
    HttpClient client;
    return parse_credentials(ask(client, request), "the container's role");
  } catch (const TransientError& problem) {
    // The environment names the service, so it exists and may answer later.
    throw TransientError(service + problem.what());
  } catch (const Error& problem) {
    tried += concat("; ", service, problem.what());
    return std::nullopt;
  }
}

/// Returns credentials from an EC2 instance's metadata service (IMDSv2), or appends a reason to `tried`.
std::optional<Credentials> instance_credentials(std::string& tried) {
  if (environment("AWS_EC2_METADATA_DISABLED") == "true") {
    tried += "; the instance's metadata service is disabled (AWS_EC2_METADATA_DISABLED)";
    return std::nullopt;
  }
  std::string service = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (service.empty()) service = instance_service;
  while (service.ends_with('/')) service.pop_back();
  try {
    HttpClient client;
    return with_retries(metadata_retries, [&] { return ask_instance(client, service); });
  } catch (const Error& problem) {
    tried += concat("; the instance's metadata service ", service, ": ", problem.what());
    return std::nullopt;
  }
}

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

std::string aws_region() {
  for (const char* variable : {"AWS_REGION", "AWS_DEFAULT_REGION"})
    if (std::string region = environment(variable); !region.empty()) return region;
  const std::string region = read_aws_profile()["region"];
  return region.empty() ? "us-east-1" : region;
}

std::string aws_endpoint() {
  for (const char* variable : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"})
    if (std::string endpoint = environment(variable); !endpoint.empty()) return endpoint;
  return read_aws_profile()["endpoint_url"];
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
  // If the metadata service is down for a moment, credentials that are still valid stay in use.
  const bool still_valid = found_ && found_->expires && std::chrono::system_clock::now() < *found_->expires;
  if (!found && found_ && !still_valid)
    throw TransientError(concat("the credentials for S3 have expired, and no new ones were found: ", tried));
  require(found || still_valid, "no credentials for S3 were found: ", tried);
  if (found) found_ = std::move(found);
  return *found_;
}

bool CredentialsProvider::renew() {
  if (!found_) return false;
  const Credentials before = *std::exchange(found_, std::nullopt);
  if (before.expires) return true;
  // The shared file may have other credentials by now.
  const Credentials& now = current();
  return now.access_key != before.access_key || now.session_token != before.session_token;
}

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
