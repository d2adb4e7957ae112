// SPDX-License-Identifier: Apache-2.0
#include "lockstep/store/credentials.h"

#include <atomic>
#include <ctime>

#include "lockstep/store/http.h"
#include "tests/store/aws_support.h"
#include "tests/support/http_server.h"
#include "tests/support/user_error.h"

namespace lockstep {
namespace {

class CredentialsTest : public AwsTest {
 protected:
  static std::string failure() {
    return user_error([] { CredentialsProvider().current(); });
  }
};

std::string in_seconds(int seconds) {
  const std::time_t time = std::time(nullptr) + seconds;
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&time));
  return text;
}

std::string role_keys(const std::string& key, int seconds) {
  return R"({"Code": "Success", "AccessKeyId": ")" + key +
         R"(", "SecretAccessKey": "role secret", "Token": "role token", "Expiration": ")" +
         in_seconds(seconds) + "\"}";
}

TEST_F(CredentialsTest, TheEnvironmentComesFirst) {
  write_text(home_ / ".aws/credentials", "[default]\naws_access_key_id = file\naws_secret_access_key = s\n");
  set("AWS_ACCESS_KEY_ID", "variable");
  set("AWS_SECRET_ACCESS_KEY", "variable's secret");
  set("AWS_SESSION_TOKEN", "token");
  CredentialsProvider provider;
  EXPECT_EQ(provider.current().access_key, "variable");
  EXPECT_EQ(provider.current().secret_key, "variable's secret");
  EXPECT_EQ(provider.current().session_token, "token");
  EXPECT_NE(provider.current().source.find("environment"), std::string::npos);
  EXPECT_FALSE(provider.renew()) << "variables of the environment cannot be renewed";
}

TEST_F(CredentialsTest, SharedFilesHaveProfiles) {
  write_text(home_ / ".aws/credentials",
             "# comment\n[default]\r\naws_access_key_id=one\naws_secret_access_key = a/b+c=\n"
             "[work]\naws_access_key_id = two\naws_secret_access_key = d\naws_session_token = t\n");
  write_text(home_ / ".aws/config",
             "[default]\nregion = eu-west-1\n[profile work]\nregion = eu-north-1\ns3 =\n  region = nested\n"
             "endpoint_url = http://minio:9000\n");
  EXPECT_EQ(CredentialsProvider().current().access_key, "one");
  EXPECT_EQ(CredentialsProvider().current().secret_key, "a/b+c=");
  EXPECT_EQ(aws_region(), "eu-west-1");
  EXPECT_EQ(aws_endpoint(), "");
  set("AWS_PROFILE", "work");
  EXPECT_EQ(CredentialsProvider().current().access_key, "two");
  EXPECT_EQ(CredentialsProvider().current().session_token, "t");
  EXPECT_EQ(aws_region(), "eu-north-1");
  EXPECT_EQ(aws_endpoint(), "http://minio:9000");
  set("AWS_PROFILE", "absent");
  expect_contains(failure(), {"AWS_PROFILE = absent", home_ / ".aws/credentials"});
  set("AWS_PROFILE", "");
  write_text(home_ / "elsewhere", "[default]\naws_access_key_id = three\naws_secret_access_key = e\n");
  set("AWS_SHARED_CREDENTIALS_FILE", home_ / "elsewhere");
  EXPECT_EQ(CredentialsProvider().current().access_key, "three");
}

TEST_F(CredentialsTest, RegionsAndEndpointsComeFromTheEnvironment) {
  EXPECT_EQ(aws_region(), "us-east-1");
  set("AWS_DEFAULT_REGION", "eu-west-2");
  EXPECT_EQ(aws_region(), "eu-west-2");
  set("AWS_REGION", "eu-west-3");
  EXPECT_EQ(aws_region(), "eu-west-3");
  set("AWS_ENDPOINT_URL", "http://a");
  EXPECT_EQ(aws_endpoint(), "http://a");
  set("AWS_ENDPOINT_URL_S3", "http://b");
  EXPECT_EQ(aws_endpoint(), "http://b");
}

TEST_F(CredentialsTest, NoneAtAllSaysWhatWasTried) {
  write_text(home_ / ".aws/config",
             "[default]\nsso_session = corporate\naws_secret_access_key = half a pair\n");
  const std::string message = failure();
  expect_contains(message, {"AWS_ACCESS_KEY_ID", home_ / ".aws/credentials", "AWS_EC2_METADATA_DISABLED",
                            "aws configure export-credentials"});
  EXPECT_EQ(message.find("half a pair"), std::string::npos);
}

TEST_F(CredentialsTest, AnInstanceIsAskedWithAToken) {
  std::atomic<int> seconds = 3600;
  const HttpServer service([&](const std::string& request) {
    if (request.starts_with("PUT /latest/api/token "))
      return http_reply(request.find("ttl-seconds: 21600") != std::string::npos ? "200 OK" : "400 Bad",
                        "a-token");
    if (request.find("X-aws-ec2-metadata-token: a-token") == std::string::npos)
      return http_reply("401 Unauthorized");
    if (request.starts_with("GET /latest/meta-data/iam/security-credentials/ "))
      return http_reply("200 OK", "trainer\n");
    if (request.starts_with("GET /latest/meta-data/iam/security-credentials/trainer "))
      return http_reply("200 OK", role_keys("instance", seconds));
    return http_reply("404 Not Found");
  });
  set("AWS_EC2_METADATA_DISABLED", "false");
  set("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url() + "/");
  set("http_proxy", "http://127.0.0.1:1");
  CredentialsProvider provider;
  EXPECT_EQ(provider.current().access_key, "instance");
  EXPECT_EQ(provider.current().secret_key, "role secret");
  EXPECT_EQ(provider.current().session_token, "role token");
  EXPECT_NE(provider.current().source.find("trainer"), std::string::npos);
  EXPECT_EQ(service.requests().size(), 3u) << "fresh keys must be kept";
  // The keys expire in four minutes, so they are requested again each time.
  seconds = 240;
  EXPECT_TRUE(provider.renew());
  provider.current();
  provider.current();
  EXPECT_EQ(service.requests().size(), 9u);
  ::unsetenv("http_proxy");
}

// A clock in nanoseconds ends in the year 2262.
TEST_F(CredentialsTest, KeysThatExpireInAFarYearAreKept) {
  const HttpServer service([](const std::string&) {
    return http_reply("200 OK", R"({"AccessKeyId": "a", "SecretAccessKey": "b", "Token": "t", )"
                                R"("Expiration": "9999-12-31T23:59:59Z"})");
  });
  set("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.url());
  CredentialsProvider provider;
  provider.current();
  provider.current();
  EXPECT_EQ(service.requests().size(), 1U);
}

TEST_F(CredentialsTest, AContainerIsAskedWithItsAuthorization) {
  const HttpServer service([](const std::string& request) {
    const bool is_authorized = request.find("Authorization: a secret word") != std::string::npos;
    return is_authorized ? http_reply("200 OK", role_keys("container", 3600)) : http_reply("403 Forbidden");
  });
  set("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.url() + "/keys");
  write_text(home_ / "token", "a secret word\n");
  set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", home_ / "token");
  EXPECT_EQ(CredentialsProvider().current().access_key, "container");
  ::unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "wrong");
  expect_contains(failure(), {service.url() + "/keys", "403"});
  // A server at these addresses would receive the authorization.
  for (const char* url :
       {"http://example.com/keys", "http://127.0.0.1.example.com/keys", "http://127.0.0.1:80@example.com/",
        "http://[::1]@example.com/keys", "http://localhost.:80\\@example.com"}) {
    set("AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
    expect_contains(failure(), {"AWS_CONTAINER_CREDENTIALS_FULL_URI", url});
  }
}

TEST_F(CredentialsTest, AContainersServiceThatDoesNotAnswerIsWaitedFor) {
  for (const std::string& reply : {http_reply("500 Error", "hush"), std::string()}) {
    const HttpServer service([&](const std::string&) { return reply; });
    set("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.url());
    try {
      CredentialsProvider().current();
      ADD_FAILURE() << "there are no credentials";
    } catch (const TransientError& problem) {
      const std::string message = problem.what();
      expect_contains(message, {service.url()});
      EXPECT_EQ(message.find("hush"), std::string::npos) << message;
    }
  }
}

TEST_F(CredentialsTest, ABrokenMetadataServiceLeaksNothing) {
  for (const std::string& reply :
       {http_reply("200 OK", R"({"AccessKeyId": "a", "SecretAccessKey": "hush", "Expira)"),
        http_reply("200 OK", R"({"SecretAccessKey": "hush", "Expiration": "2026-01-01T00:00:00Z"})"),
        http_reply("200 OK", R"({"AccessKeyId": "a", "SecretAccessKey": "hush", "Expiration": "soon"})"),
        http_reply("200 OK", "[\"hush\"]")}) {
    const HttpServer service([&](const std::string&) { return reply; });
    set("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.url());
    const std::string message = failure();
    expect_contains(message, {"no credentials", service.url()});
    EXPECT_EQ(message.find("hush"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace lockstep
