// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/core/clock.h"
#include "lockstep/store/owner.h"
#include "lockstep/store/s3_address.h"
#include "lockstep/store/s3_client.h"

namespace lockstep {

/// How long a lease holds, and the clock of its owner and its watchers.
struct LeaseTerms {
  double length_seconds = 30.0;
  double renewal_seconds = 7.5;
  double poll_seconds = 1.0;  ///< pause of a watcher between two looks

  /// Reads the length from LOCKSTEP_S3_LEASE_SECONDS. Throws UserError for a wrong value.
  static LeaseTerms from_environment();
};

/// Ownership of a prefix of a bucket that one run at a time writes to. The object .owner names the owner. The
/// owner rewrites it every few seconds, on condition that nobody else did (If-None-Match, If-Match). A lease
/// is over if its ETag has not changed for its whole length, as the watcher's own clock measures it. A later
/// start of the same run takes the lease at once. A start warns if the server has no conditions: then two
/// runs that start at the same moment may not notice each other.
class BucketLease {
 public:
  /// Takes the lease. Throws OwnedByAnother if another run renews it, after watching it for at most its
  /// length. Throws UserError if the object is none that a run has written.
  BucketLease(std::string key, const S3Address& prefix, Owner self = Owner::this_process(),
              LeaseTerms terms = LeaseTerms::from_environment(),
              const std::optional<S3Options>& options = std::nullopt);
  /// Releases the lease, if the server answers.
  ~BucketLease();
  BucketLease(const BucketLease&) = delete;
  BucketLease& operator=(const BucketLease&) = delete;

  /// Renews the lease, unless that was done a moment ago. Throws Error if another start has taken it: then
  /// nothing more may be written.
  void check();
  /// Throws Error if a renewal of before has found the lease taken.
  void check_recently() const;

 private:
  /// The object at one moment.
  struct Seen {
    bool exists = false;
    std::string text = {};
    std::string tag = {};
  };

  void take();
  std::optional<Seen> seen_when_free(Seen seen);
  Seen look();
  Seen look_twice();
  bool write(const std::string& text, const Seen& before, int attempts);
  HttpReply put(const std::string& text, const std::string& condition, int attempts);
  bool has_stored(const std::string& text, HttpReply reply);
  std::string next_text(bool is_released = false);
  void probe_conditions();
  bool renew(int attempts);
  [[noreturn]] void throw_lost() const;

  std::string key_;
  std::string name_;    ///< of the prefix, for messages
  std::string object_;  ///< the key of the object
  Owner self_;
  LeaseTerms terms_;
  std::mutex mutex_;  ///< of all below
  S3Client client_;
  Seen mine_;
  int64_t renewals_ = 0;
  bool has_conditions_ = true;
  Clock::time_point renewed_ = Clock::now();
  std::atomic<bool> is_lost_{false};
  std::jthread renewing_;
};

}  // namespace lockstep
