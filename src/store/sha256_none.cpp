// SPDX-License-Identifier: Apache-2.0
// Refuses to compute a checksum in a build without OpenSSL.
#include "lockstep/core/error.h"
#include "lockstep/store/sha256.h"

namespace lockstep {
namespace {

constexpr const char* no_openssl =
    "this build has no OpenSSL, which downloads and S3 need: configure with LOCKSTEP_OPENSSL=ON "
    "(docs/install.md)";

}  // namespace

std::string sha256(std::string_view) { throw UserError(no_openssl); }
std::string sha256(Pieces) { throw UserError(no_openssl); }
std::string hmac_sha256(std::string_view, std::string_view) { throw UserError(no_openssl); }

}  // namespace lockstep
