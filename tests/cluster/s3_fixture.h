// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/store/http.h"
#include "lockstep/store/object_store.h"
#include "tests/cluster/s3_server.h"
#include "tests/support/aws.h"
#include "tests/support/cluster.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {

/// A server that checks signatures. The environment has only the credentials of its user "writer".
class S3 : public testing::Test {
 protected:
  void SetUp() override {
    const std::string python = python_with_moto();
    if (python.empty())
      LOCKSTEP_SKIP_OR_FAIL("no Python with moto[server]; scripts/install_deps.sh --cluster makes one");
    server_ = std::make_unique<S3Server>(python, certificate_);
    ASSERT_TRUE(server_->runs()) << "tests/cluster/s3_server.py did not start";
    forget_aws(directory_.path());
    ::setenv("AWS_REGION", "us-east-1", 1);
    ::setenv("LOCKSTEP_S3_STALL_SECONDS", "4", 1);  // the server stalls for 6 s
    use(server_->plain(), "writer");
  }

  void use(const std::string& endpoint, const std::string& user) {
    ::setenv("AWS_ENDPOINT_URL", endpoint.c_str(), 1);
    ::setenv("AWS_ACCESS_KEY_ID", server_->access_key(user).c_str(), 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", server_->secret_key(user).c_str(), 1);
  }

  std::string address(const std::string& prefix) const {
    return "s3://" + server_->bucket() + (prefix.empty() ? "" : "/" + prefix);
  }

  /// Returns the number of requests that the faulty port spoiled.
  int faults() {
    HttpClient client;
    const auto counts =
        nlohmann::json::parse(client.perform({.url = server_->faulty() + "/proxy/counts"}).body);
    int spoiled = 0;
    for (const auto& [kind, count] : counts.items()) spoiled += kind == "none" ? 0 : count.get<int>();
    return spoiled;
  }

  TemporaryDirectory directory_;
  std::string certificate_ = directory_ / "certificate.pem";
  std::unique_ptr<S3Server> server_;
};

}  // namespace lockstep
