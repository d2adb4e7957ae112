// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "store/object_store.h"

namespace lockstep {

struct HttpRequest {
  std::string method = "GET";
  std::string url = {};
  std::vector<std::string> headers = {};  ///< "name: value"
  Pieces body = {};                       ///< for PUT and POST
  NewFile* file = nullptr;                ///< receives the body of a successful reply
  std::string ca_bundle = {};             ///< a file of certificates; empty: the system's
  bool may_redirect = false;
  bool may_use_proxy = true;
  double connect_seconds = 5.0;
  double stall_seconds = 10.0;  ///< limit of the time without a byte
  double total_seconds = 0.0;   ///< 0: no limit
};

/// Returns the header that requests a part of an object, as ObjectReader::get() does; none for the whole.
inline std::vector<std::string> range_header(int64_t begin, int64_t bytes) {
  constexpr int64_t all = ObjectReader::all_bytes;
  if (begin == 0 && bytes == all) return {};
  return {concat("Range: bytes=", begin, "-", begin + std::min(bytes, all - begin) - 1)};
}

struct HttpReply {
  long status = 0;                             ///< 0 for a file:// URL
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;                            ///< unless HttpRequest::file has it

  /// Returns whether another try may succeed.
  bool is_busy() const { return status == 429 || status >= 500; }
};

/// A client that sends one request after the other on a kept connection. TLS is always verified.
class HttpClient {
 public:
  HttpClient();

  /// Sends a request and returns the reply, whatever its status. Throws TransientError without a whole reply.
  /// Throws UserError for an address that cannot work or a certificate that is not trusted.
  HttpReply perform(const HttpRequest& request);

 private:
  std::unique_ptr<void, void (*)(void*)> curl_;
};

}  // namespace lockstep
