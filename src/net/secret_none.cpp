// SPDX-License-Identifier: Apache-2.0
// Refuses to make secrets and proofs in a build without OpenSSL.
#include "lockstep/core/error.h"
#include "lockstep/net/secret.h"

namespace lockstep {
namespace {

constexpr const char* no_openssl =
    "this build has no OpenSSL, which lockrun needs: configure with LOCKSTEP_OPENSSL=ON (docs/install.md), "
    "or use mpirun or srun";

}  // namespace

std::string random_bytes(size_t) { throw UserError(no_openssl); }
std::string authentication_code(std::string_view, std::string_view) { throw UserError(no_openssl); }
bool equal_in_constant_time(std::string_view, std::string_view) { throw UserError(no_openssl); }

}  // namespace lockstep
