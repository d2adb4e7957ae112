// SPDX-License-Identifier: Apache-2.0
// Replies of S3 and of the service that gives a container its credentials: header lines, a blank line, the
// body. This file replaces the HTTP client, so no socket is used.
#include <algorithm>
#include <array>

#include "fuzz/fuzz.h"
#include "lockstep/core/text.h"
#include "lockstep/store/credentials.h"
#include "lockstep/store/http.h"
#include "lockstep/store/s3_client.h"

using namespace lockstep;

namespace {

HttpReply reply;

constexpr std::array<long, 6> statuses = {200, 206, 301, 403, 404, 416};

HttpReply reply_of(uint8_t status, std::string_view text) {
  HttpReply made{.status = statuses[status % statuses.size()], .headers = {}, .body = {}};
  const size_t border = std::min(text.find("\n\n"), text.size());
  made.body = text.substr(std::min(border + 2, text.size()));
  for (std::string_view lines = text.substr(0, border); !lines.empty();) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    const size_t colon = std::min(line.find(": "), line.size());
    made.headers[lower_case(std::string(line.substr(0, colon)))] =
        line.substr(std::min(colon + 2, line.size()));
  }
  return made;
}

void use_store(uint8_t request) {
  S3Options options{.region = "eu-west-1", .endpoint = "http://s3.test"};
  options.part_bytes = 8;
  options.retries = {.attempts = 1};
  const auto store = open_s3({.bucket = "bucket", .key = "prefix"}, options);
  const std::string contents(request % 32, 'x');
  switch (request % 5) {
    case 0:
      return void(store->list("step-"));
    case 1:
      return void(store->get("key"));
    case 2:
      return void(store->get("key", 3, 5));
    case 3:
      return store->put_text("key", contents);
    default:
      return void(store->exists("key"));
  }
}

}  // namespace

HttpClient::HttpClient() : curl_(nullptr, [](void*) {}) {}

HttpReply HttpClient::perform(const HttpRequest& /*request*/) { return reply; }

std::string lockstep::host_of_url(const std::string& /*url*/) { return "credentials.test"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes < 2) return 0;
  reply = reply_of(data[0], fuzz::text_of(data + 2, bytes - 2));
  const bool asks_for_credentials = data[1] >= 200;
  ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  ::setenv("AWS_CONFIG_FILE", "/dev/null", 1);
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
  ::setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "https://credentials.test/", 1);
  ::setenv("AWS_ACCESS_KEY_ID", asks_for_credentials ? "" : "key", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  // A failure of a server is no mistake of the user, so it is an Error.
  fuzz::accepts<Error>([&] {
    if (!asks_for_credentials) return use_store(data[1]);
    CredentialsProvider provider;
    provider.current();
    provider.current();
  });
  return 0;
}
