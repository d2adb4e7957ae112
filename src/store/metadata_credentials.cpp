// SPDX-License-Identifier: Apache-2.0
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "store/credentials.h"
#include "store/environment.h"
#include "store/http.h"
#include "store/retry.h"

namespace lockstep {
namespace {

constexpr const char* container_service = "http://169.254.170.2";
constexpr const char* instance_service = "http://169.254.169.254";
constexpr const char* token_path = "/latest/api/token";
constexpr const char* roles_path = "/latest/meta-data/iam/security-credentials/";
constexpr RetryPolicy metadata_retries{.attempts = 2};

std::string ask(HttpClient& client, HttpRequest request) {
  // The service is next door or not there at all; no proxy is between.
  request.may_use_proxy = false;
  request.connect_seconds = 1.0;
  request.total_seconds = 2.0;
  const HttpReply reply = client.perform(request);
  if (reply.status >= 500 || reply.status == 429) throw TransientError(concat("answered ", reply.status));
  expect(reply.status == 200, "answered ", reply.status);
  return reply.body;
}

std::chrono::system_clock::time_point parse_time(const std::string& text) {
  std::tm time{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  expect(end != nullptr, "answered with a time that is none");
  return std::chrono::system_clock::from_time_t(::timegm(&time));
}

Credentials parse_credentials(const std::string& reply, const std::string& source) {
  // The exception of a parser would quote the reply, which holds the secret.
  const auto json = nlohmann::json::parse(reply, nullptr, /*allow_exceptions=*/false);
  const auto text = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_string() ? json[key].get<std::string>()
                                                                           : "";
  };
  Credentials credentials{.access_key = text("AccessKeyId"),
                          .secret_key = text("SecretAccessKey"),
                          .session_token = text("Token"),
                          .source = source,
                          .expires = parse_time(text("Expiration"))};
  expect(!credentials.access_key.empty() && !credentials.secret_key.empty(), "answered without keys");
  return credentials;
}

/// Credentials may only be asked of a host that nobody on the way can pose as.
bool is_trusted(const std::string& url) {
  if (url.starts_with("https://")) return true;
  for (const char* host : {"http://127.0.0.1", "http://localhost", "http://[::1]", "http://169.254.170.2",
                           "http://169.254.170.23", "http://[fd00:ec2::23]"}) {
    const size_t length = std::string(host).size();
    if (url.starts_with(host) && (url.size() == length || url[length] == ':' || url[length] == '/'))
      return true;
  }
  return false;
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

}  // namespace

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
  try {
    HttpClient client;
    return with_retries(metadata_retries,
                        [&] { return parse_credentials(ask(client, request), "the container's role"); });
  } catch (const Error& problem) {
    tried += concat("; the container's service ", url, ": ", problem.what());
    return std::nullopt;
  }
}

std::optional<Credentials> instance_credentials(std::string& tried) {
  if (environment("AWS_EC2_METADATA_DISABLED") == "true") {
    tried += "; the instance's metadata service is switched off (AWS_EC2_METADATA_DISABLED)";
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

}  // namespace lockstep
