// SPDX-License-Identifier: Apache-2.0
// Addresses of hosts and buckets.
#include "lockstep/net/addresses.h"

#include "fuzz/fuzz.h"
#include "lockstep/store/s3_address.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string text(fuzz::text_of(data, bytes));
  fuzz::accepts([&] {
    const Endpoint endpoint = Endpoint::parse(text, 29400);
    const Endpoint again = Endpoint::parse(endpoint.text());
    fuzz::check(again.host == endpoint.host && again.port == endpoint.port, endpoint.text(),
                " reads back as ", again.text());
  });
  fuzz::accepts([&] {
    const S3Address address = parse_s3_address(text);
    s3_endpoint(address.bucket, "eu-west-1", "");
    const std::string key = percent_encode(address.key, true);
    fuzz::check(key.find_first_of(" ?#&\n") == std::string::npos, "a key that is not encoded: ", key);
  });
  fuzz::accepts([&] { s3_endpoint("bucket", text, ""); });
  fuzz::accepts([&] { s3_endpoint("bucket", "eu-west-1", text); });
  return 0;
}
