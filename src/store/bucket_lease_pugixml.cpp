// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"
#include "lockstep/program/signals.h"
#include "lockstep/store/bucket_lease.h"

namespace lockstep {
namespace {

constexpr const char* owner_object = ".owner";
/// The longest lease of another program version that is waited for.
constexpr double longest_seconds = 600.0;

/// A lease in the text of the object: the owner's line, then "lease SECONDS RENEWALS".
struct Lease {
  Owner owner = {};
  double length_seconds = 0.0;  ///< 0: it was released

  bool is_released() const { return length_seconds <= 0.0; }
};

std::string text_of(const Lease& lease, int64_t renewals) {
  return concat(text_of(lease.owner), "lease ", fixed_text(lease.length_seconds, 3), " ", renewals, "\n");
}

/// Returns the lease in a text; nothing if it is none. The file .owner of a folder, copied to the bucket,
/// counts as a released one.
std::optional<Lease> lease_in(const std::string& text) {
  const size_t end = text.find('\n');
  const std::optional<Owner> owner = owner_in(text.substr(0, end));
  if (!owner) return text.empty() ? std::optional<Lease>(Lease()) : std::nullopt;
  if (owner->process == 0) return std::nullopt;
  const std::string line = end == std::string::npos ? "" : text.substr(end + 1);
  if (line.empty()) return Lease{.owner = *owner};
  constexpr std::string_view word = "lease ";
  const auto seconds =
      line.starts_with(word)
          ? number_in<double>(line.substr(word.size(), line.find(' ', word.size()) - word.size()))
          : std::nullopt;
  if (!seconds || !line.ends_with('\n')) return std::nullopt;
  return Lease{.owner = *owner, .length_seconds = std::min(*seconds, longest_seconds)};
}

/// Returns an ETag that If-Match accepts. A proxy that compresses may have made it a weak one.
std::string strong(const std::string& tag) { return tag.starts_with("W/") ? tag.substr(2) : tag; }

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
  renewing_ = std::jthread([this](const std::stop_token& over) {
    repeat(over, terms_.renewal_seconds, [this] {
      try {
        return renew(1);
      } catch (const std::exception&) {
        return true;  // the server does not answer; the next renewal finds out whether the lease was taken
      }
    });
  });
}

BucketLease::~BucketLease() {
  renewing_.request_stop();
  renewing_.join();
  // Without an answer to the last renewals the server would only hold up the end.
  if (is_lost_ || seconds_since(renewed_) > 2.0 * terms_.renewal_seconds) return;
  try {
    write(next_text(true), mine_, 1);
  } catch (const std::exception&) {
    // The lease ends by itself.
  }
}

void BucketLease::take() {
  constexpr int most_tries = 10;
  for (int tried = 0; tried < most_tries; ++tried) {
    const std::optional<Seen> seen = seen_when_free(look_twice());
    if (seen && write(next_text(), *seen, 0)) {
      const Owner before = seen->exists ? lease_in(seen->text)->owner : Owner();
      if (self_.supersedes(before) && !lease_in(seen->text)->is_released())
        log_info(concat(key_, ": ", name_, " is taken from process ", before.process, " on ", before.host,
                        ", of an earlier start of this run"));
      return probe_conditions();
    }
    wait_unless_stopped(terms_.poll_seconds);
  }
  throw Error(
      concat(key_, ": ", name_, "/", owner_object, " changes whenever this process tries to take it"));
}

/// Returns the object once nothing renews the lease, or nothing if the caller has to look again. Throws
/// OwnedByAnother if another run renews it.
std::optional<BucketLease::Seen> BucketLease::seen_when_free(Seen seen) {
  if (!seen.exists) return seen;
  const std::optional<Lease> lease = lease_in(seen.text);
  require(lease.has_value(), key_, ": ", name_, "/", owner_object,
          " is in the way: no run has written it; move it, or choose another ", key_);
  if (lease->is_released() || self_.supersedes(lease->owner)) return seen;
  log_info(concat(key_, ": waiting up to ", fixed_text(lease->length_seconds, 0),
                  " s to see whether process ", lease->owner.process, " on ", lease->owner.host,
                  " still writes to ", name_));
  for (Clock::time_point begin = Clock::now(); seconds_since(begin) < lease->length_seconds;) {
    wait_unless_stopped(std::min(terms_.poll_seconds, lease->length_seconds));
    const Clock::time_point asked = Clock::now();
    const Seen now = look_twice();
    const bool has_tags = !seen.tag.empty() && !now.tag.empty();
    if (now.exists != seen.exists || (has_tags ? now.tag != seen.tag : now.text != seen.text)) {
      const std::optional<Lease> next = now.exists ? lease_in(now.text) : std::nullopt;
      if (next && !next->is_released()) throw OwnedByAnother(key_, name_, next->owner);
      return std::nullopt;
    }
    // A server that did not answer for long did not answer the owner either.
    if (seconds_since(asked) > terms_.renewal_seconds) begin = Clock::now();
  }
  return seen;
}

BucketLease::Seen BucketLease::look() {
  HttpReply reply = client_.send({.key = object_});
  if (reply.status == 404) return {};
  return {.exists = true, .text = std::move(reply.body), .tag = strong(reply.headers["etag"])};
}

/// Looks again if the object is absent or cannot be read: a single reply may be wrong.
BucketLease::Seen BucketLease::look_twice() {
  Seen seen = look();
  return seen.exists && lease_in(seen.text) ? seen : look();
}

HttpReply BucketLease::put(const std::string& text, const std::string& condition, int attempts) {
  const std::array body = {std::as_bytes(std::span(text))};
  std::vector<std::string> headers;
  if (!condition.empty()) headers.push_back(condition);
  return client_.send(
      {.method = "PUT", .key = object_, .headers = headers, .body = body, .attempts = attempts});
}

/// Remembers the text of a PUT that succeeded. Returns whether it did.
bool BucketLease::has_stored(const std::string& text, HttpReply reply) {
  const bool is_stored = reply.status >= 200 && reply.status < 300;
  if (is_stored) mine_ = {.exists = true, .text = text, .tag = strong(reply.headers["etag"])};
  return is_stored;
}

/// Writes the object if it is unchanged since it was seen. Returns whether this was done.
bool BucketLease::write(const std::string& text, const Seen& before, int attempts) {
  Seen last = before;
  // Two rounds: a renewal whose reply was lost has changed the object, and this process is still its owner.
  for (int round = 0; round < 2; ++round) {
    if (last.exists && last.tag.empty()) has_conditions_ = false;
    if (has_conditions_) {
      const HttpReply reply =
          put(text, last.exists ? concat("If-Match: ", last.tag) : "If-None-Match: *", attempts);
      if (has_stored(text, reply)) return true;
      has_conditions_ = reply.status == 404 || reply.status == 412;
    }
    if (!has_conditions_ && look().text == last.text && has_stored(text, put(text, "", attempts)))
      return true;
    last = look();
    if (last.text == text) {
      mine_ = last;
      return true;
    }
    const std::optional<Lease> now = last.exists ? lease_in(last.text) : std::nullopt;
    if (!now || now->owner != self_ || now->is_released()) return false;
  }
  return false;
}

std::string BucketLease::next_text(bool is_released) {
  return text_of(Lease{.owner = self_, .length_seconds = is_released ? 0.0 : terms_.length_seconds},
                 ++renewals_);
}

/// Finds out whether the server knows conditions: one that cannot hold must be refused.
void BucketLease::probe_conditions() {
  if (has_conditions_) {
    const std::string text = next_text();
    const HttpReply reply = put(text, "If-None-Match: *", 0);
    has_conditions_ = reply.status == 412;
    has_stored(text, reply);
  }
  if (!has_conditions_)
    log_warning(concat(key_, ": the server of ", name_,
                       " has no conditional writes (If-None-Match): two runs that start there at the same "
                       "moment do not notice each other"));
}

bool BucketLease::renew(int attempts) {
  const std::scoped_lock lock(mutex_);
  if (is_lost_) return false;
  is_lost_ = !write(next_text(), mine_, attempts);
  renewed_ = Clock::now();
  return !is_lost_;
}

void BucketLease::check() {
  // Each object of a snapshot asks for this.
  const double moment = terms_.renewal_seconds / 8.0;
  const bool is_fresh = [&] {
    const std::scoped_lock lock(mutex_);
    return !is_lost_ && seconds_since(renewed_) < moment;
  }();
  if (!is_fresh && !renew(0)) throw_lost();
}

void BucketLease::check_recently() const {
  if (is_lost_.load(std::memory_order_relaxed)) throw_lost();
}

void BucketLease::throw_lost() const {
  throw Error(concat(key_, ": ", name_,
                     " no longer belongs to this process: another start took it or deleted its object ",
                     owner_object));
}

}  // namespace lockstep
