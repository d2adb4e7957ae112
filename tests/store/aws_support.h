// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <gtest/gtest.h>

#include "lockstep/store/s3_client.h"
#include "tests/support/aws.h"
#include "tests/support/http_server.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {

/// A test that starts without AWS variables and files. The metadata service is disabled.
class AwsTest : public testing::Test {
 protected:
  void SetUp() override {
    forget_aws(home_.path());
    std::filesystem::create_directory(home_ / ".aws");
  }

  static void set(const char* variable, const std::string& value) { ::setenv(variable, value.c_str(), 1); }

  TemporaryDirectory home_;
};

/// A client of a server that answers as the test says. Waits between attempts are short.
class S3Test : public AwsTest {
 protected:
  void SetUp() override {
    AwsTest::SetUp();
    set("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE");
    set("AWS_SECRET_ACCESS_KEY", "the secret");
    set("AWS_SESSION_TOKEN", "the token");
  }

  static S3Options options(const HttpServer& server) {
    S3Options options = S3Options::from_environment();
    options.endpoint = server.url();
    options.retries = {.attempts = 4, .first_delay_seconds = 0.001};
    return options;
  }
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace lockstep
