// SPDX-License-Identifier: Apache-2.0
#include "lockstep/store/s3_address.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

TEST(S3Address, IsBucketAndKey) {
  const S3Address address = parse_s3_address("s3://bucket/a/b/");
  EXPECT_EQ(address.bucket, "bucket");
  EXPECT_EQ(address.key, "a/b");
  EXPECT_EQ(parse_s3_address("s3://bucket").key, "");
  EXPECT_EQ(parse_s3_address("s3://bucket//").key, "");
  EXPECT_EQ(parse_s3_address("s3://bucket/.a/b..c/...").key, ".a/b..c/...");
  for (const char* wrong : {"s3://", "s3:///a", "s3://a b/c", "s3://ab/c", "s3://user:secret@host/a",
                            "http://bucket/a", "s3://bucket/./a", "s3://bucket/a/../b", "s3://bucket/.."})
    EXPECT_THROW(parse_s3_address(wrong), UserError) << wrong;
}

TEST(S3Address, EncodesAsAwsSigns) {
  EXPECT_EQ(percent_encode("AZaz09-._~"), "AZaz09-._~");
  EXPECT_EQ(percent_encode("a b+c/d=\u00fc*'()"), "a%20b%2Bc%2Fd%3D%C3%BC%2A%27%28%29");
  EXPECT_EQ(percent_encode("a/b c", true), "a/b%20c");
  EXPECT_EQ(canonical_query({{"prefix", "a/b"}, {"list-type", "2"}, {"uploads", ""}}),
            "list-type=2&prefix=a%2Fb&uploads=");
  EXPECT_EQ(canonical_query({}), "");
}

TEST(S3Endpoint, HasTheBucketInHostOrPath) {
  EXPECT_EQ(s3_endpoint("bucket", "eu-west-1", "").host, "https://bucket.s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(s3_endpoint("bucket", "eu-west-1", "").path, "");
  EXPECT_EQ(s3_endpoint("bucket", "cn-north-1", "").host, "https://bucket.s3.cn-north-1.amazonaws.com.cn");
  // Certificates do not cover *.*.s3.amazonaws.com.
  EXPECT_EQ(s3_endpoint("a.bucket", "eu-west-1", "").host, "https://s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(s3_endpoint("a.bucket", "eu-west-1", "").path, "/a.bucket");
  EXPECT_EQ(s3_endpoint("bucket", "eu-west-1", "http://minio:9000/").host, "http://minio:9000");
  EXPECT_EQ(s3_endpoint("bucket", "eu-west-1", "http://minio:9000/").path, "/bucket");
  EXPECT_THROW(s3_endpoint("bucket", "eu-west-1", "minio:9000"), UserError);
}

}  // namespace
}  // namespace lockstep
