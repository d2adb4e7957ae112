// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "store/object_store.h"

namespace lockstep {

struct HttpRequest {
  std::string method = "GET";
  std::string url = {};
  std::vector<std::string> headers = {};  ///< "name: value"
  Pieces body = {};                       ///< of PUT and POST
  std::string ca_bundle = {};             ///< a file of certificates; empty: the system's
  bool may_redirect = false;
  bool may_use_proxy = true;
  double connect_seconds = 5.0;
  double stall_seconds = 10.0;  ///< without a byte
  double total_seconds = 0.0;   ///< 0: no limit
};

struct HttpReply {
  long status = 0;                             ///< 0 for a file:// URL
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
};

/// Sends requests one after the other and keeps the connection between them. TLS is always verified.
class HttpClient {
 public:
  HttpClient();

  /// Any status is a reply. Throws TransientError if there was none, or only a part of one; UserError for an
  /// address that cannot work and a certificate that is not trusted.
  HttpReply perform(const HttpRequest& request);

 private:
  std::unique_ptr<void, void (*)(void*)> curl_;
};

}  // namespace lockstep
