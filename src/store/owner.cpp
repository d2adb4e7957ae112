// SPDX-License-Identifier: Apache-2.0
#include "store/owner.h"

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <iomanip>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <tuple>
#include <unistd.h>

#include "core/clock.h"
#include "core/environment.h"
#include "core/host.h"
#include "core/log.h"
#include "core/text.h"
#include "json/json_members.h"
#include "program/signals.h"

namespace lockstep {

using Json = nlohmann::json;

static constexpr auto json_members(const Owner* /*any*/) {
  return std::tuple{JsonMember{"run", &Owner::run},         JsonMember{"generation", &Owner::generation},
                    JsonMember{"host", &Owner::host},       JsonMember{"boot_id", &Owner::boot_id},
                    JsonMember{"process", &Owner::process}, JsonMember{"since", &Owner::since}};
}

namespace {

std::string now_as_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  return concat(std::put_time(&parts, "%Y-%m-%d %H:%M:%S UTC"));
}

std::string fresh_id() {
  std::random_device random;
  return concat("alone-", random(), "-", random());
}

}  // namespace

Owner Owner::this_process() {
  const int64_t starts_of_job = number_from_environment<int64_t>("SLURM_RESTART_COUNT");
  const std::string job = environment("SLURM_JOB_ID");
  Owner owner{.run = environment("LOCKSTEP_RUN_ID"),
              .generation = number_from_environment<int64_t>("LOCKSTEP_GENERATION"),
              .host = host_name(),
              .boot_id = lockstep::boot_id(),
              .process = ::getpid(),
              .since = now_as_text()};
  if (!owner.run.empty()) return owner;
  owner.run = job.empty() ? fresh_id() : "slurm-" + job;
  // Counts as lockrun does within a job: a requeue counts a million, and a start by lockrun one.
  owner.generation = job.empty() ? 0 : starts_of_job * 1000000;
  return owner;
}

std::string text_of(const Owner& owner) { return Json(owner).dump() + "\n"; }

std::optional<Owner> owner_in(std::string_view text) {
  if (text.empty()) return std::nullopt;
  constexpr size_t most_bytes = 4096;
  try {
    Owner owner;
    read_value(JsonField<Json>(text, "the owner", most_bytes), owner);
    return owner;
  } catch (const UserError&) {
    return unknown_owner();
  }
}

Owner unknown_owner() { return {.host = "an unknown host", .since = "an unknown time"}; }

OwnedByAnother::OwnedByAnother(const std::string& key, const std::string& place, const Owner& owner)
    : UserError(concat(key, ": another run writes to ", place, ": process ", owner.process, " on ",
                       owner.host, ", since ", owner.since,
                       "; wait for it (snapshot.wait_minutes), end it, or choose another ", key)) {}

void wait_for_owner(double seconds, const std::function<void()>& take) {
  constexpr double notice_seconds = 60.0;
  const Clock::time_point begin = Clock::now();
  for (double next_notice = 0.0;;) {
    try {
      return take();
    } catch (const OwnedByAnother& other) {
      const double waited = seconds_since(begin);
      if (waited >= seconds) throw;
      if (waited >= next_notice)
        log_info(concat(other.what(), "; waiting for another ", fixed_text(seconds - waited, 0), " s"));
      next_notice = std::max(next_notice, waited + (waited >= next_notice ? notice_seconds : 0.0));
    }
    wait_unless_stopped(1.0);
  }
}

void repeat(const std::stop_token& over, double interval_seconds, const std::function<bool()>& body) {
  std::mutex mutex;
  std::unique_lock guard(mutex);
  std::condition_variable_any nothing;
  const auto is_over = [&] { return over.stop_requested(); };
  while (!nothing.wait_for(guard, over, clock_duration(interval_seconds), is_over) && body()) continue;
}

}  // namespace lockstep
