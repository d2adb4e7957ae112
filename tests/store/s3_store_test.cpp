// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>

#include "lockstep/core/error.h"
#include "lockstep/store/s3_client.h"
#include "tests/store/aws_support.h"
#include "tests/store/put_group.h"
#include "tests/support/user_error.h"

namespace lockstep {
namespace {

/// Returns the step of a multipart upload that the request is for.
std::string step_of(const std::string& request) {
  if (contains(request, "uploads=")) return "start";
  if (contains(request, "partNumber=")) return "part";
  return request.starts_with("DELETE") ? "abort" : "complete";
}

std::string good_answer(const std::string& step) {
  if (step == "start")
    return http_reply(
        "200 OK", "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>");
  if (step == "part") return http_reply("200 OK", "", "ETag: \"tag\"\r\n");
  return http_reply("200 OK", "<CompleteMultipartUploadResult/>");
}

using S3ListTest = S3Test;

TEST_F(S3ListTest, AServerThatRepeatsItselfIsRefused) {
  const HttpServer server([](const std::string&) {
    return http_reply("200 OK",
                      "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>next"
                      "</NextContinuationToken></ListBucketResult>");
  });
  const auto store = open_s3({.bucket = "bucket", .key = ""}, options(server));
  expect_contains(error_of([&] { store->list("step-"); }), {"without a new continuation token"});
  EXPECT_EQ(server.requests().size(), 2U);
}

class S3UploadTest : public S3Test {
 protected:
  /// Uploads an object in three parts. Returns the steps that the server has seen.
  static std::vector<std::string> upload(const HttpServer& server) {
    S3Options small_parts = options(server);
    small_parts.part_bytes = 4;
    const auto store = open_s3({.bucket = "bucket", .key = ""}, small_parts);
    const std::string text = "0123456789";
    const std::array pieces = {std::as_bytes(std::span(text))};
    std::vector<std::string> steps;
    try {
      store->put("key", pieces);
    } catch (const Error& error) {
      steps.push_back("thrown");
    }
    for (const std::string& request : server.requests()) steps.push_back(step_of(request));
    return steps;
  }
};

TEST_F(S3UploadTest, TriesAgainASuccessThatIsAnError) {
  for (const char* answer : {"<Error><Code>InternalError</Code></Error>",
                             "\n<?xml version=\"1.0\"?><Error><Code>InternalError</Code></Error>",
                             "<CompleteMultipartUploadRes", ""}) {
    std::atomic<int> completed = 0;
    const HttpServer server([&](const std::string& request) {
      const bool fails = step_of(request) == "complete" && ++completed == 1;
      return fails ? http_reply("200 OK", answer) : good_answer(step_of(request));
    });
    EXPECT_EQ(upload(server),
              (std::vector<std::string>{"start", "part", "part", "part", "complete", "complete"}))
        << answer;
  }
}

TEST_F(S3UploadTest, StartsAnewWhereTheUploadIsGone) {
  std::atomic<int> completed = 0;
  const HttpServer server([&](const std::string& request) {
    const bool is_gone = step_of(request) == "complete" && ++completed == 1;
    return is_gone ? http_reply("404 Not Found", "<Error><Code>NoSuchUpload</Code></Error>")
                   : good_answer(step_of(request));
  });
  EXPECT_EQ(upload(server), (std::vector<std::string>{"start", "part", "part", "part", "complete", "start",
                                                      "part", "part", "part", "complete"}));
}

TEST_F(S3UploadTest, AbortsWhatItCannotFinish) {
  const HttpServer server([](const std::string& request) {
    return step_of(request) == "part" ? http_reply("403 Forbidden") : good_answer(step_of(request));
  });
  EXPECT_EQ(upload(server), (std::vector<std::string>{"thrown", "start", "part", "abort"}));
}

class S3GroupTest : public S3Test {
 protected:
  static std::unique_ptr<ObjectStore> store(const HttpServer& server, size_t part_bytes = size_t{5} << 20) {
    S3Options of_server = options(server);
    of_server.part_bytes = part_bytes;
    return open_s3({.bucket = "bucket", .key = "run"}, of_server);
  }

  /// Returns the method and the path of each request, such as "PUT /bucket/run/g/a".
  static std::vector<std::string> lines(const HttpServer& server) {
    std::vector<std::string> lines;
    for (const std::string& request : server.requests())
      lines.push_back(request.substr(0, request.find_first_of("? ", request.find(' ') + 1)));
    return lines;
  }
};

TEST_F(S3GroupTest, TheLastObjectVouchesForTheOthers) {
  const HttpServer server([](const std::string&) { return http_reply("200 OK"); });
  const std::string text = "text";
  const std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(text))};
  const auto bucket = store(server);
  put_group(*bucket, "g", std::array{Object{"z", pieces}, Object{"a", pieces}, Object{"last", pieces}});
  EXPECT_EQ(lines(server), (std::vector<std::string>{"DELETE /bucket/run/g/last", "PUT /bucket/run/g/z",
                                                     "PUT /bucket/run/g/a", "PUT /bucket/run/g/last"}));
}

TEST_F(S3GroupTest, APartWithoutAnEndBeginsWhereItShould) {
  const HttpServer ranges([](const std::string& request) {
    return contains(request, "bytes=2-")
               ? http_reply("206 Partial Content", "xt", "Content-Range: bytes 2-3/4\r\n")
               : http_reply("200 OK", "text");
  });
  const HttpServer no_ranges([](const std::string&) { return http_reply("200 OK", "text"); });
  for (const HttpServer* server : {&ranges, &no_ranges}) {
    EXPECT_EQ(store(*server)->get("a", 2), "xt");
    EXPECT_EQ(store(*server)->get("a"), "text");
  }
}

TEST_F(S3GroupTest, SeveralWriteThePartsOfOneUpload) {
  const HttpServer server([](const std::string& request) { return good_answer(step_of(request)); });
  const auto first = store(server, 4), second = store(server, 4);
  const std::string begun = first->begin_group("g", std::array{PlannedObject{"large", 10}}, "last");
  const std::string text = "0123456789";
  const auto bytes = std::as_bytes(std::span(text));
  const std::string later =
      second->write_parts("g", begun, "large", std::array{ObjectPart{8, bytes.subspan(8)}});
  const std::string early = first->write_parts(
      "g", begun, "large", std::array{ObjectPart{0, bytes.first(3)}, ObjectPart{3, bytes.subspan(3, 5)}});
  first->end_group("g", begun, std::array{later, early}, {"last", {bytes.first(3)}});
  std::vector<std::string> numbers;
  for (const std::string& request : server.requests()) {
    const size_t number = request.find("partNumber=");
    if (number != std::string::npos) numbers.push_back(request.substr(number + 11, 1));
    if (!request.starts_with("POST") || step_of(request) != "complete") continue;
    for (size_t at = 0, part = 1; part <= 3; ++part) {
      at = request.find("<PartNumber>" + std::to_string(part), at);
      EXPECT_NE(at, std::string::npos) << "parts are completed in order: " << request;
    }
  }
  EXPECT_EQ(numbers, (std::vector<std::string>{"3", "1", "2"}));
  EXPECT_EQ(lines(server).front(), "DELETE /bucket/run/g/last");
  EXPECT_EQ(lines(server).back(), "PUT /bucket/run/g/last");
}

TEST_F(S3GroupTest, AGroupThatBreaksOffHasNoLastObject) {
  const HttpServer server([](const std::string& request) {
    return http_reply(request.starts_with("PUT /bucket/run/g/b") ? "403 Forbidden" : "200 OK");
  });
  const auto bucket = store(server);
  EXPECT_THROW(put_group(*bucket, "g", std::array{Object{"a", {}}, Object{"b", {}}, Object{"last", {}}}),
               UserError);
  EXPECT_EQ(lines(server), (std::vector<std::string>{"DELETE /bucket/run/g/last", "PUT /bucket/run/g/a",
                                                     "PUT /bucket/run/g/b"}));
}

TEST_F(S3GroupTest, TheLastObjectIsRemovedFirst) {
  const HttpServer server([](const std::string& request) {
    return request.starts_with("GET")
               ? http_reply("200 OK",
                            "<ListBucketResult><IsTruncated>false</IsTruncated>"
                            "<Contents><Key>run/g/a</Key></Contents></ListBucketResult>")
               : http_reply("204 No Content");
  });
  store(server)->remove_group("g", "last");
  EXPECT_EQ(lines(server), (std::vector<std::string>{"DELETE /bucket/run/g/last", "GET /bucket/",
                                                     "DELETE /bucket/run/g/a"}));
}

}  // namespace
}  // namespace lockstep
