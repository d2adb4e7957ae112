// SPDX-License-Identifier: Apache-2.0
#include "lockstep/store/s3_client.h"

#include <array>
#include <atomic>

#include "lockstep/core/error.h"
#include "tests/store/aws_support.h"

namespace lockstep {
namespace {

const std::string busy = "<Error><Code>SlowDown</Code><Message>later</Message></Error>";

class S3ClientTest : public S3Test {
 protected:
  template <class Failure>
  static std::string failure_of(const HttpServer& server, const S3Request& request) {
    try {
      S3Client("bucket", options(server)).send(request);
    } catch (const Failure& error) {
      return error.what();
    }
    return "(nothing was thrown)";
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(S3ClientTest, SignsWhatItSends) {
  const HttpServer server([](const std::string&) { return http_reply("200 OK"); });
  const std::string text = "text";
  const std::array pieces = {std::as_bytes(std::span(text))};
  S3Client client("bucket", options(server));
  client.send(
      {.method = "PUT", .key = "a b/c", .query = {{"partNumber", "1"}, {"uploadId", "x/y"}}, .body = pieces});
  const std::string request = server.requests().at(0);
  EXPECT_TRUE(request.starts_with("PUT /bucket/a%20b/c?partNumber=1&uploadId=x%2Fy HTTP/1.1\r\n")) << request;
  EXPECT_TRUE(request.ends_with("\r\n\r\ntext")) << request;
  for (const char* part :
       {"Credential=AKIAEXAMPLE/", "/us-east-1/s3/aws4_request",
        "SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token",
        "x-amz-security-token: the token",
        "x-amz-content-sha256: 982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"})
    EXPECT_TRUE(contains(request, part)) << part << " in " << request;
  EXPECT_FALSE(contains(request, "the secret"));
}

TEST_F(S3ClientTest, ReturnsThatAnObjectHasNotChanged) {
  const HttpServer server([](const std::string&) { return http_reply("304 Not Modified"); });
  const S3Request request{.key = "a", .headers = {"If-None-Match: \"v1\""}};
  EXPECT_EQ(S3Client("bucket", options(server)).send(request).status, 304);
  for (const char* part : {"If-None-Match: \"v1\"\r\n", "SignedHeaders=host;if-none-match;"})
    EXPECT_TRUE(contains(server.requests().at(0), part)) << part;
}

TEST_F(S3ClientTest, TriesAgainWhatIsBusyOrBroken) {
  for (const std::string& bad :
       {http_reply("500 Internal Server Error"), http_reply("503 Slow Down", busy),
        http_reply("429 Too Many Requests"),
        http_reply("400 Bad Request", "<Error><Code>RequestTimeout</Code></Error>"), std::string(),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly a part")}) {
    std::atomic<int> count = 0;
    const HttpServer server(
        [&](const std::string&) { return ++count < 4 ? bad : http_reply("200 OK", "whole"); });
    EXPECT_EQ(S3Client("bucket", options(server)).send({.key = "a"}).body, "whole") << bad;
    EXPECT_EQ(count, 4);
  }
}

TEST_F(S3ClientTest, ReadsAgainWhatAProxyCutShort) {
  std::atomic<int> count = 0;
  const HttpServer server([&](const std::string&) {
    const std::string body = ++count < 3 ? "ab" : "abcd";
    return http_reply("206 Partial Content", body, "Content-Range: bytes 4-7/100\r\n");
  });
  EXPECT_EQ(S3Client("bucket", options(server)).send({.key = "a", .begin = 4, .bytes = 4}).body, "abcd");
  EXPECT_EQ(count, 3);
}

TEST_F(S3ClientTest, WaitsForAnOutageUnlessItMayNot) {
  Clock::time_point now = Clock::now();
  const Clock::time_point end = now + clock_duration(599.0);
  const RetryClock clock = {.now = [&] { return now; },
                            .sleep = [&](double seconds) { now += clock_duration(seconds); }};
  const HttpServer server([&](const std::string&) { return now < end ? "" : http_reply("200 OK", "back"); });
  S3Options patient = options(server);
  patient.retries = {.outage_seconds = 600.0, .clock = &clock};
  EXPECT_THROW(S3Client("bucket", patient).send({.key = "a", .attempts = 8}), Error);
  EXPECT_LT(now, end);
  EXPECT_EQ(S3Client("bucket", patient).send({.key = "a"}).body, "back");
}

TEST_F(S3ClientTest, GivesUpAtLast) {
  const HttpServer server([](const std::string&) { return http_reply("503 Slow Down", busy); });
  const std::string message = failure_of<Error>(server, {.key = "a/b"});
  EXPECT_TRUE(contains(message, "s3://bucket/a/b: GET failed: the server answered 503 SlowDown: later"))
      << message;
  EXPECT_TRUE(contains(message, "4 attempts")) << message;
  try {
    S3Client("bucket", options(server)).send({.key = "a"});
  } catch (const UserError& error) {
    FAIL() << "an outage is not the user's fault: " << error.what();
  } catch (const Error&) {
  }
}

TEST_F(S3ClientTest, NamesWhatIsRefusedAndNoSecret) {
  const HttpServer server([](const std::string&) {
    return http_reply("403 Forbidden",
                      "<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message>"
                      "<CanonicalRequest>x-amz-security-token:the token</CanonicalRequest></Error>");
  });
  const std::string message = failure_of<UserError>(server, {.method = "PUT", .key = "a/b"});
  for (const char* part : {"s3://bucket/a/b", "PUT", "403 SignatureDoesNotMatch: no", "bucket bucket",
                           "key a/b", "region us-east-1", "AWS_ACCESS_KEY_ID", "s3:PutObject"})
    EXPECT_TRUE(contains(message, part)) << part << " in " << message;
  EXPECT_FALSE(contains(message, "the token") || contains(message, "the secret")) << message;
  EXPECT_EQ(server.requests().size(), 1u) << "another attempt would not help";
}

TEST_F(S3ClientTest, AnUnknownErrorPageIsNoPuzzle) {
  const HttpServer server(
      [](const std::string&) { return http_reply("400 Bad Request", "<html><body>proxy<br>"); });
  EXPECT_TRUE(contains(failure_of<UserError>(server, {.key = "a"}), "(400)"));
}

TEST_F(S3ClientTest, FollowsABucketToItsRegion) {
  const HttpServer server([](const std::string& request) {
    return contains(request, "/eu-west-1/s3/")
               ? http_reply("200 OK", "found")
               : http_reply("301 Moved Permanently", "", "x-amz-bucket-region: eu-west-1\r\n");
  });
  EXPECT_EQ(S3Client("bucket", options(server)).send({.key = "a"}).body, "found");
}

TEST_F(S3ClientTest, RenewsCredentialsThatExpire) {
  const HttpServer service([count = 0](const std::string&) mutable {
    const std::string key = concat("KEY", ++count);
    return http_reply(
        "200 OK", R"({"AccessKeyId": ")" + key +
                      R"(", "SecretAccessKey": "s", "Token": "t", "Expiration": "2099-01-01T00:00:00Z"})");
  });
  ::unsetenv("AWS_ACCESS_KEY_ID");
  set("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.url());
  const HttpServer server([](const std::string& request) {
    return contains(request, "Credential=KEY2/")
               ? http_reply("200 OK", "found")
               : http_reply("400 Bad Request", "<Error><Code>ExpiredToken</Code></Error>");
  });
  EXPECT_EQ(S3Client("bucket", options(server)).send({.key = "a"}).body, "found");
}

TEST_F(S3ClientTest, OptionsComeFromTheEnvironment) {
  set("LOCKSTEP_S3_PART_MIB", "5");
  EXPECT_EQ(S3Options::from_environment().part_bytes, size_t{5} << 20);
  for (const char* wrong : {"0", "-1", "5x", "many"}) {
    set("LOCKSTEP_S3_PART_MIB", wrong);
    EXPECT_THROW(S3Options::from_environment(), UserError) << wrong;
  }
  set("LOCKSTEP_S3_PART_MIB", "5");
  EXPECT_EQ(S3Options::from_environment().retries.outage_seconds, 600.0);
  set("LOCKSTEP_S3_OUTAGE_SECONDS", "0");
  EXPECT_EQ(S3Options::from_environment().retries.outage_seconds, 0.0);
  set("LOCKSTEP_S3_OUTAGE_SECONDS", "-5");
  EXPECT_THROW(S3Options::from_environment(), UserError);
}

}  // namespace
}  // namespace lockstep
