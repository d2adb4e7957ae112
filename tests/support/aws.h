// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

namespace lockstep {

/// Removes all settings of AWS and S3 from this process's environment and sets its home. Requests to this
/// machine bypass any proxy.
inline void forget_aws(const std::string& home) {
  for (const char* variable : {"AWS_ACCESS_KEY_ID",
                               "AWS_SECRET_ACCESS_KEY",
                               "AWS_SESSION_TOKEN",
                               "AWS_PROFILE",
                               "AWS_REGION",
                               "AWS_DEFAULT_REGION",
                               "AWS_ENDPOINT_URL",
                               "AWS_ENDPOINT_URL_S3",
                               "AWS_CA_BUNDLE",
                               "AWS_CONFIG_FILE",
                               "AWS_SHARED_CREDENTIALS_FILE",
                               "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                               "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                               "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                               "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                               "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                               "LOCKSTEP_S3_PART_MIB",
                               "LOCKSTEP_S3_STALL_SECONDS",
                               "LOCKSTEP_S3_OUTAGE_SECONDS",
                               "LOCKSTEP_S3_LEASE_SECONDS"})
    ::unsetenv(variable);
  ::setenv("HOME", home.c_str(), 1);
  ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  ::setenv("no_proxy", "127.0.0.1", 1);
}

}  // namespace lockstep
