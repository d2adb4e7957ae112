// SPDX-License-Identifier: Apache-2.0
// Refuses every request in a build without libcurl.
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/store/http.h"

namespace lockstep {
namespace {

constexpr const char* no_curl =
    "this build has no libcurl, which downloads and S3 need: configure with LOCKSTEP_CURL=ON "
    "(docs/install.md)";

}  // namespace

HttpClient::HttpClient() : curl_(nullptr, [](void*) {}) { throw UserError(no_curl); }

std::string host_of_url(const std::string& /*url*/) { return ""; }

HttpReply HttpClient::perform(const HttpRequest&) { throw UserError(no_curl); }

}  // namespace lockstep
