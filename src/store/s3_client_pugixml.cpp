// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ctime>
#include <pugixml.hpp>
#include <utility>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/store/credentials.h"
#include "lockstep/store/s3_address.h"
#include "lockstep/store/s3_client.h"
#include "lockstep/store/sha256.h"

namespace lockstep {
namespace {

constexpr double seconds_to_complete = 900.0;
/// A failure's answer, and that to a completed upload, has a few elements.
constexpr size_t most_answer_bytes = 64 << 10;

/// The XML answer of S3: the name of its root element. A failure also has a code (NoSuchKey) and a sentence.
struct S3Answer {
  std::string root;
  std::string code;
  std::string message;
};

/// Parses an answer. All fields are empty for an incomplete one and for a proxy's page.
S3Answer answer_of(const HttpReply& reply) {
  pugi::xml_document document;
  if (reply.body.size() > most_answer_bytes || !document.load_string(reply.body.c_str())) return {};
  const pugi::xml_node root = document.document_element();
  return {.root = root.name(), .code = root.child_value("Code"), .message = root.child_value("Message")};
}

/// Returns whether the reply is an XML document with this root element, up to its end.
bool has_whole(const HttpReply& reply, const std::string& root) {
  constexpr size_t most_at_end = 256;
  const size_t begin = reply.body.size() - std::min(reply.body.size(), most_at_end);
  return trimmed(reply.body.substr(begin)).ends_with(concat("</", root, ">")) ||
         answer_of(reply).root == root;
}

std::string describe(const HttpReply& reply) {
  const auto [root, code, message] = answer_of(reply);
  return concat(reply.status, code.empty() ? "" : " ", code, message.empty() ? "" : ": ", message);
}

/// Returns the key of a request, or the prefix that it lists.
std::string subject_of(const S3Request& request) {
  const auto prefix = request.query.find("prefix");
  return prefix == request.query.end() ? request.key : prefix->second;
}

bool is_conditional_put(const S3Request& request) {
  return request.method == "PUT" && std::ranges::any_of(request.headers, [](const std::string& header) {
           return header.starts_with("If-");
         });
}

const char* permission_for(const S3Request& request) {
  if (request.key.empty()) return "s3:ListBucket on the bucket";
  if (request.method == "GET" || request.method == "HEAD") return "s3:GetObject on it";
  if (request.method == "DELETE" && request.query.empty()) return "s3:DeleteObject on it";
  return request.method == "DELETE" ? "s3:AbortMultipartUpload on it" : "s3:PutObject on it";
}

}  // namespace

double number_of_variable(const char* variable, double otherwise, int64_t least, int64_t most) {
  const std::string text = environment(variable);
  if (text.empty()) return otherwise;
  const double number = number_in<double>(text).value_or(-1.0);
  const bool is_within = number >= static_cast<double>(least) && number <= static_cast<double>(most);
  require(is_within, variable, " = ", text, " is not a number from ", least, " to ", most);
  return number;
}

S3Options S3Options::from_environment() {
  S3Options options{
      .region = aws_region(), .endpoint = aws_endpoint(), .ca_bundle = environment("AWS_CA_BUNDLE")};
  const double mebibytes =
      number_of_variable("LOCKSTEP_S3_PART_MIB", static_cast<double>(options.part_bytes >> 20));
  options.part_bytes = static_cast<size_t>(mebibytes) << 20;
  options.stall_seconds = number_of_variable("LOCKSTEP_S3_STALL_SECONDS", options.stall_seconds);
  constexpr int64_t day = 86400;
  double& outage_seconds = options.retries.outage_seconds;
  outage_seconds = number_of_variable("LOCKSTEP_S3_OUTAGE_SECONDS", outage_seconds, 0, day);
  return options;
}

S3Client::S3Client(std::string bucket, S3Options options)
    : bucket_(std::move(bucket)), options_(std::move(options)) {
  s3_endpoint(bucket_, options_.region, options_.endpoint);
}

std::string S3Client::name_of(const std::string& key) const {
  return concat("s3://", bucket_, key.empty() ? "" : "/", key);
}

HttpReply S3Client::send(const S3Request& request) {
  const std::string body_sha256 = sha256(request.body);
  RetryPolicy retries = options_.retries;
  if (request.attempts > 0) {
    retries.attempts = request.attempts;
    retries.outage_seconds = 0.0;
  }
  return with_retries(retries, [&] { return attempt(request, body_sha256); });
}

HttpReply S3Client::attempt(const S3Request& request, const std::string& body_sha256) {
  const S3Endpoint endpoint = s3_endpoint(bucket_, options_.region, options_.endpoint);
  const std::string url = concat(endpoint.host, endpoint.path, "/", percent_encode(request.key, true));
  const size_t host = url.find("://") + 3, path = url.find('/', host);
  S3Signed to_sign{.method = request.method,
                   .host = url.substr(host, path - host),
                   .path = url.substr(path),
                   .query = canonical_query(request.query),
                   .headers = range_header(request.begin, request.bytes),
                   .body_sha256 = body_sha256};
  to_sign.headers.insert(to_sign.headers.end(), request.headers.begin(), request.headers.end());
  if (!request.body.empty()) to_sign.headers.emplace_back("content-type: application/octet-stream");
  const Credentials credentials = credentials_.current();  // may ask a server, so the time is taken later
  HttpRequest signed_request{.method = request.method,
                             .url = concat(url, to_sign.query.empty() ? "" : "?", to_sign.query),
                             .headers = sign_s3(credentials, options_.region, to_sign, std::time(nullptr)),
                             .body = request.body,
                             .file = request.file,
                             .ca_bundle = options_.ca_bundle,
                             .stall_seconds = options_.stall_seconds,
                             .most_bytes = most_bytes_in_memory};
  if (request.method == "POST" && request.query.contains("uploadId")) {
    // S3 may take minutes to join the parts of an object. It sends a blank now and then.
    signed_request.total_seconds = seconds_to_complete;
    signed_request.least_rate = 1;
  }
  const std::string what = concat(name_of(subject_of(request)), ": ", request.method, " failed: ");
  HttpReply reply;
  try {
    reply = http_.perform(signed_request);
    const bool is_part = request.begin > 0 || request.bytes < ObjectReader::all_bytes;
    const bool has_body = request.file == nullptr && (reply.status == 200 || reply.status == 206);
    if (is_part && has_body) cut_to_range(reply, request.begin, request.bytes);
  } catch (const TransientError& problem) {
    throw TransientError(what + problem.what());
  } catch (const UserError& problem) {
    throw UserError(what + problem.what());
  }
  judge(request, reply);
  return reply;
}

void S3Client::judge(const S3Request& request, const HttpReply& reply) {
  const bool is_success = reply.status >= 200 && reply.status < 300;
  // The body counts too: S3 starts to answer the last request of an upload before it knows the result, and a
  // list may be cut short.
  if (is_success && (request.root == nullptr || has_whole(reply, request.root))) return;
  const std::string code = answer_of(reply).code;
  const bool is_page = reply.status == 404 && code.empty() && request.root != nullptr;
  const bool is_absent = reply.status == 404 && code != "NoSuchBucket" && !is_page;
  if (is_absent || reply.status == 416 || reply.status == 304) return;
  if (is_conditional_put(request) && reply.status == 412) return;
  const auto region = reply.headers.find("x-amz-bucket-region");
  const bool is_elsewhere = (reply.status == 301 || reply.status == 307 || reply.status == 400) &&
                            region != reply.headers.end() && region->second != options_.region;
  if (is_elsewhere) options_.region = region->second;
  const bool is_busy = reply.is_busy() || is_success || is_page || code == "RequestTimeout" ||
                       code == "SlowDown" || code == "OperationAborted" ||
                       code == "ConditionalRequestConflict";
  if (is_busy || is_elsewhere || (code == "ExpiredToken" && credentials_.renew()))
    throw TransientError(concat(name_of(subject_of(request)), ": ", request.method,
                                " failed: the server answered ", describe(reply)));
  const bool is_unknown = reply.status == 400 || reply.status == 405 || reply.status == 501;
  if (is_conditional_put(request) && is_unknown) return;
  refuse(request, reply);
}

void S3Client::refuse(const S3Request& request, const HttpReply& reply) {
  const std::string host = s3_endpoint(bucket_, options_.region, options_.endpoint).host;
  const std::string said = concat(name_of(subject_of(request)), ": ", request.method, " was refused by ",
                                  host, " (", describe(reply), ")");
  require(reply.status == 401 || reply.status == 403, said,
          reply.status == 404
              ? "; create the bucket first, or correct its name, AWS_REGION or AWS_ENDPOINT_URL"
              : "");
  throw UserError(concat(said, ". Tried: bucket ", bucket_, ", key ", subject_of(request), ", region ",
                         options_.region, ", credentials from ", credentials_.current().source,
                         ". They need ", permission_for(request)));
}

}  // namespace lockstep
