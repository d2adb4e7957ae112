// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lockstep/store/credentials.h"

namespace lockstep {
namespace {

// The examples of Amazon S3's API reference, with the key, the date and the signatures given there.
TEST(S3Signature, IsThatOfAmazonsExamples) {
  const Credentials credentials{.access_key = "AKIAIOSFODNN7EXAMPLE",
                                .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                .session_token = {},
                                .source = {}};
  constexpr std::time_t may_24_2013 = 1369353600;
  const std::string nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
  const std::string host = "examplebucket.s3.amazonaws.com";
  const std::pair<S3Signed, const char*> examples[] = {
      {{.method = "GET",
        .host = host,
        .path = "/test.txt",
        .headers = {"Range: bytes=0-9"},
        .body_sha256 = nothing},
       "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
      {{.method = "PUT",
        .host = host,
        .path = "/test%24file.text",
        .headers = {"date: Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class: REDUCED_REDUNDANCY"},
        .body_sha256 = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"},
       "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
      {{.method = "GET", .host = host, .path = "/", .query = "lifecycle=", .body_sha256 = nothing},
       "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
      {{.method = "GET", .host = host, .path = "/", .query = "max-keys=2&prefix=J", .body_sha256 = nothing},
       "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"}};
  for (const auto& [request, signature] : examples) {
    const std::string signs = sign_s3(credentials, "us-east-1", request, may_24_2013).back();
    EXPECT_TRUE(
        signs.starts_with("authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/"
                          "us-east-1/s3/aws4_request, SignedHeaders="))
        << signs;
    EXPECT_TRUE(signs.ends_with(std::string(", Signature=") + signature)) << signs;
  }
}

}  // namespace
}  // namespace lockstep
