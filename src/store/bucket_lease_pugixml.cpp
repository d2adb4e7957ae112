// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <span>
#include <utility>

#include "core/clock.h"
#include "core/log.h"
#include "core/text.h"
#include "store/bucket_lease.h"

namespace lockstep {
namespace {

constexpr const char* owner_object = ".owner";
/// The longest lease of another program version that is waited for.
constexpr double longest_seconds = 600.0;

/// The lines of the object: the owner, then "lease SECONDS RENEWALS". A released lease has 0 seconds.
std::string lease_text(const Owner& owner, double length_seconds, int64_t renewals) {
  return concat(text_of(owner), "lease ", fixed_text(length_seconds, 3), " ", renewals, "\n");
}

Owner owner_of(const std::string& text) {
  return owner_in(text.substr(0, text.find('\n'))).value_or(Owner());
}

/// Returns the length in the text of a lease; nothing if it has been released.
std::optional<double> length_of(const std::string& text) {
  const size_t begin = text.find("\nlease ");
  if (begin == std::string::npos) return longest_seconds;
  const std::string rest = text.substr(begin + std::string_view("\nlease ").size());
  const double seconds = number_in<double>(rest.substr(0, rest.find(' '))).value_or(longest_seconds);
  return seconds > 0.0 ? std::optional(std::min(seconds, longest_seconds)) : std::nullopt;
}

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

}  // namespace

LeaseTerms LeaseTerms::from_environment() {
  const LeaseTerms usual;
  const double length = number_of_variable("LOCKSTEP_S3_LEASE_SECONDS", usual.length_seconds, 2);
  return {.length_seconds = length, .renewal_seconds = length / 4.0, .poll_seconds = usual.poll_seconds};
}

BucketLease::BucketLease(std::string key, const S3Address& prefix, Owner self, LeaseTerms terms,
                         const std::optional<S3Options>& options)
    : key_(std::move(key)),
      object_(prefix.key.empty() ? owner_object : concat(prefix.key, "/", owner_object)),
      self_(std::move(self)),
      terms_(terms),
      client_(prefix.bucket, options ? *options : S3Options::from_environment()) {
  name_ = client_.name_of(prefix.key);
  take();
  renewing_ = std::jthread([this](const std::stop_token& over) { renew_until(over); });
}

BucketLease::~BucketLease() {
  renewing_.request_stop();
  renewing_.join();
  if (is_lost_) return;
  try {
    write(next_text(true), mine_, false);
  } catch (const Error&) {
    // The lease ends by itself.
  }
}

void BucketLease::take() {
  while (true) {
    const Seen seen = look();
    const bool is_free = seen.text.empty() || !length_of(seen.text) || self_.supersedes(owner_of(seen.text));
    if (!is_free && is_renewed(seen)) throw OwnedByAnother(key_, name_, owner_of(seen.text));
    if (has_taken(seen)) return probe_conditions();
  }
}

/// Watches the lease of another run for its length. Returns whether it is renewed.
bool BucketLease::is_renewed(const Seen& seen) {
  const Owner owner = owner_of(seen.text);
  const double length = *length_of(seen.text);
  log_info(concat(key_, ": waiting up to ", fixed_text(length, 0), " s to see whether process ",
                  owner.process, " on ", owner.host, " still writes to ", name_));
  const Clock::time_point begin = Clock::now();
  while (seconds_since(begin) < length) {
    sleep_for(std::min(terms_.poll_seconds, length));
    if (const Seen now = look(); now != seen) return length_of(now.text) && !now.text.empty();
  }
  return false;
}

/// Tries to put this process in the place of the lease that was seen. Another one may be faster.
bool BucketLease::has_taken(const Seen& seen) {
  const Owner before = owner_of(seen.text);
  if (!write(next_text(), seen, true)) return false;
  if (!seen.text.empty() && length_of(seen.text) && before.run == self_.run)
    log_info(concat(key_, ": ", name_, " is taken from process ", before.process, " on ", before.host,
                    ", of an earlier start of this run"));
  return true;
}

BucketLease::Seen BucketLease::look() {
  HttpReply reply = client_.send({.key = object_});
  if (reply.status == 404) return {};
  // A store without ETags would show no renewal, so the text counts too.
  return {.text = std::move(reply.body), .tag = reply.headers["etag"]};
}

/// Writes the object if it is still as it was seen `before`. Returns whether this was done.
bool BucketLease::write(const std::string& text, const Seen& before, bool may_wait) {
  const std::array body = {std::as_bytes(std::span(text))};
  // Without conditions the last look is all that there is.
  if (!has_conditions_ && look().text != before.text) return false;
  const std::string condition = !has_conditions_      ? ""
                                : before.text.empty() ? "If-None-Match: *"
                                                      : concat("If-Match: ", before.tag);
  HttpReply reply = client_.send(
      {.method = "PUT", .key = object_, .condition = condition, .body = body, .may_wait = may_wait});
  if (reply.status == 501) {
    has_conditions_ = false;
    return write(text, before, may_wait);
  }
  if (reply.status == 404 || reply.status == 412) {
    // A reply may have been lost after the object was written, and the request sent again.
    const Seen now = look();
    if (now.text != text) return false;
    mine_ = now;
    return true;
  }
  mine_ = {.text = text, .tag = reply.headers["etag"]};
  return true;
}

std::string BucketLease::next_text(bool is_released) {
  return lease_text(self_, is_released ? 0.0 : terms_.length_seconds, ++renewals_);
}

/// Finds out whether the server knows conditions: one that cannot hold must be refused.
void BucketLease::probe_conditions() {
  if (has_conditions_) {
    const std::string text = next_text();
    const std::array body = {std::as_bytes(std::span(text))};
    HttpReply reply =
        client_.send({.method = "PUT", .key = object_, .condition = "If-None-Match: *", .body = body});
    has_conditions_ = reply.status == 412;
    if (!has_conditions_ && reply.status != 501) mine_ = {.text = text, .tag = reply.headers["etag"]};
  }
  if (!has_conditions_)
    log_warning(concat(key_, ": the server of ", name_,
                       " has no conditional writes (If-None-Match): two runs that start there at the same "
                       "moment do not notice each other"));
}

bool BucketLease::renew(bool may_wait) {
  const std::scoped_lock lock(mutex_);
  if (!is_lost_ && !write(next_text(), mine_, may_wait)) is_lost_ = true;
  return !is_lost_;
}

void BucketLease::check() {
  if (!renew(true)) throw_lost();
}

void BucketLease::check_recently() const {
  if (is_lost_.load(std::memory_order_relaxed)) throw_lost();
}

void BucketLease::throw_lost() const {
  throw Error(concat(key_, ": ", name_,
                     " no longer belongs to this process: another start took it or deleted its object ",
                     owner_object));
}

void BucketLease::renew_until(const std::stop_token& over) {
  std::mutex mutex;
  std::unique_lock guard(mutex);
  std::condition_variable_any nothing;
  const std::chrono::duration<double> interval(terms_.renewal_seconds);
  while (!nothing.wait_for(guard, over, interval, [&] { return over.stop_requested(); })) {
    try {
      if (!renew(false)) return;
    } catch (const Error&) {
      // The server does not answer. The next renewal finds out whether the lease was taken meanwhile.
    }
  }
}

}  // namespace lockstep
