// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/store/object_store.h"

namespace lockstep {

/// A failure that another try may avoid: a broken connection, a busy server.
class TransientError : public Error {
 public:
  using Error::Error;
};

/// A clock that tests replace.
struct RetryClock {
  std::function<Clock::time_point()> now;
  std::function<void(double seconds)> sleep;
};

/// The number of attempts and the delays between them. Delays double and are the same in every run.
struct RetryPolicy {
  int attempts = 8;
  double first_delay_seconds = 0.1;
  double longest_delay_seconds = 10.0;
  double outage_seconds = 0.0;        ///< more attempts follow until an outage has lasted this long
  const RetryClock* clock = nullptr;  ///< null: the real one

  /// Returns the delay after this number of failures (from 1 on).
  double delay_seconds(int failures) const {
    return std::min(std::ldexp(first_delay_seconds, failures - 1), longest_delay_seconds);
  }
};

/// The failures of one call so far.
class Outage {
 public:
  explicit Outage(const RetryPolicy& policy);

  /// Waits until the next attempt. Logs that it waits after ten seconds and then each minute. After the last
  /// attempt it throws Error instead, with the number of attempts. Throws StoppedBeforeStart if a start is
  /// asked to stop.
  void wait(const TransientError& problem);

 private:
  const RetryPolicy& policy_;
  const RetryClock& clock_;
  Clock::time_point began_;
  int failures_ = 0;
  double logged_at_seconds_ = -1.0;  ///< since the first failure; -1: not yet
};

/// Repeats a call while it throws TransientError, as the policy says.
template <class Call>
auto with_retries(const RetryPolicy& policy, Call call) {
  for (std::optional<Outage> outage;;) {
    try {
      return call();
    } catch (const TransientError& problem) {
      if (!outage) outage.emplace(policy);
      outage->wait(problem);
    }
  }
}

/// An object may arrive whole from a server that ignores ranges.
inline constexpr int64_t most_bytes_in_memory = int64_t{64} << 30;

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
  double stall_seconds = 10.0;  ///< limit of the time with fewer than `least_rate` bytes per second
  double total_seconds = 0.0;   ///< limit of the whole request; 0: a limit that grows with its bytes
  int64_t least_rate = 1024;    ///< bytes per second; 1 for a server that may think long
  int64_t most_bytes = int64_t{1} << 30;  ///< limit of a reply's body in memory
};

/// Returns the header that requests a part of an object, as ObjectReader::get() does; none for the whole.
std::vector<std::string> range_header(int64_t begin, int64_t bytes);

struct HttpReply {
  long status = 0;                             ///< 0 for a file:// URL
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;                            ///< unless HttpRequest::file has it

  /// Returns whether another try may succeed. 501 is the answer to a request that the server does not know.
  bool is_busy() const { return status == 429 || (status >= 500 && status != 501); }
};

/// Cuts the body to the bytes [begin, begin + bytes) of an object, after a request with range_header(). A
/// server without ranges replies with the whole object. Throws TransientError for bytes that are not those
/// of the range.
void cut_to_range(HttpReply& reply, int64_t begin, int64_t bytes);

/// Returns the host of a URL in lower case, "[::1]" for an IPv6 address; empty if it is not a URL.
std::string host_of_url(const std::string& url);

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
