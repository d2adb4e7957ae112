// SPDX-License-Identifier: Apache-2.0
// AWS's shared files: the configuration, then the credentials.
#include "fuzz/fuzz.h"
#include "lockstep/store/credentials.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static fuzz::MemoryFile configuration, credentials;
  static const bool is_set = [] {
    ::setenv("AWS_CONFIG_FILE", configuration.path().c_str(), 1);
    ::setenv("AWS_SHARED_CREDENTIALS_FILE", credentials.path().c_str(), 1);
    ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    ::setenv("AWS_PROFILE", "run", 1);
    ::unsetenv("AWS_ACCESS_KEY_ID");
    ::unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    return true;
  }();
  fuzz::check(is_set, "no environment");
  const auto parts = fuzz::parts_of(fuzz::text_of(data, bytes), 2);
  configuration.set(parts[0]);
  credentials.set(parts[1]);
  fuzz::accepts([] { aws_region(); });
  fuzz::accepts([] { aws_endpoint(); });
  fuzz::accepts([] {
    CredentialsProvider provider;
    const Credentials& found = provider.current();
    fuzz::check(!found.access_key.empty() && !found.secret_key.empty(), "credentials without a key");
  });
  return 0;
}
