// SPDX-License-Identifier: Apache-2.0
#include "lockstep/store/owner.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <iomanip>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <sys/file.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

#include "lockstep/core/clock.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/log.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/json/json_members.h"
#include "lockstep/program/signals.h"

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

constexpr const char* owner_file = "/.owner";
constexpr double touch_interval_seconds = 1.0;
constexpr std::chrono::milliseconds poll_interval{50};

/// Returns the owner that the file names; nothing if it is empty, as an owner that leaves makes it.
std::optional<Owner> read_owner(int file) {
  std::array<char, 4096> bytes{};
  const ssize_t count = ::pread(file, bytes.data(), bytes.size(), 0);
  return owner_in({bytes.data(), static_cast<size_t>(std::max<ssize_t>(count, 0))});
}

struct stat status_of(int file) {
  struct stat status {};
  ::fstat(file, &status);
  return status;
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
  owner.run =
      job.empty() ? concat("alone-", std::random_device()(), "-", std::random_device()()) : "slurm-" + job;
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

FolderOwner::FolderOwner(std::string key, std::string folder, Owner self, double patience)
    : key_(std::move(key)),
      folder_(std::move(folder)),
      path_(folder_ + owner_file),
      self_(std::move(self)),
      patience_(patience) {
  std::error_code problem;
  std::filesystem::create_directories(folder_, problem);
  require_of_system(
      !problem, problem.value(),
      concat(key_, ": ", folder_, " cannot be created: ", problem.message(), "; choose another ", key_));
  const Clock::time_point begin = Clock::now();
  take();
  waited_seconds_ = seconds_since(begin);
  touching_ = std::jthread([this](const std::stop_token& over) {
    repeat(over, touch_interval_seconds, [this] {
      ::futimens(file_.get(), nullptr);
      is_lost_.store(place_of(file_.get()) == Possession::lost, std::memory_order_relaxed);
      return true;
    });
  });
}

FolderOwner::~FolderOwner() {
  touching_.request_stop();
  touching_.join();
  // Empties its own file by the descriptor. The path may lead to the file of another owner by now.
  [[maybe_unused]] const int emptied = ::ftruncate(file_.get(), 0);
}

void FolderOwner::take() {
  const Clock::time_point begin = Clock::now();
  while (const std::optional<Owner> other = try_to_take()) {
    if (seconds_since(begin) >= patience_) {
      if (!self_.supersedes(*other)) throw OwnedByAnother(key_, folder_, *other);
      log_warning(concat(key_, ": process ", other->process, " on ", other->host,
                         ", of an earlier start of this run, still runs; ", folder_, " is taken from it"));
      return make_own_file();
    }
    std::this_thread::sleep_for(poll_interval);
  }
}

/// Returns nothing once the folder is taken, else the owner that still holds it.
std::optional<Owner> FolderOwner::try_to_take() {
  OpenedFile opened = open_own_file(path_, O_RDWR | O_CREAT);
  // The file may belong to another user of a shared folder. A lock only needs read access.
  if (opened.error == EACCES) opened = open_own_file(path_, O_RDONLY);
  const Descriptor& file = opened.file;
  require_of_system(
      bool(file), opened.error,
      concat(key_, ": ", path_, " cannot be written: ", opened.reason, "; choose another ", key_));
  const Lock state = lock(file.get());
  // If the file was replaced between the two calls, the new file counts.
  if (place_of(file.get()) != Possession::own) return unknown_owner();
  const std::optional<Owner> other = read_owner(file.get());
  if (state == Lock::held) {
    if (other && !self_.supersedes(*other)) throw OwnedByAnother(key_, folder_, *other);
    return other.value_or(unknown_owner());
  }
  // A lock that could be taken only proves that this host has no other owner.
  const bool has_left = !other || (state == Lock::taken && other->boot_id == self_.boot_id);
  if (!has_left && !self_.supersedes(*other)) {
    log_info(concat(key_, ": waiting ", patience_, " s to see whether process ", other->process, " on ",
                    other->host, " still writes to ", folder_));
    if (is_touched_by_others()) throw OwnedByAnother(key_, folder_, *other);
  }
  make_own_file();
  return std::nullopt;
}

FolderOwner::Lock FolderOwner::lock(int file) {
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return Lock::taken;
  if (errno == EWOULDBLOCK) return Lock::held;
  if (!lock_was_missing_)
    log_warning(concat(key_, ": files in ", folder_, " cannot be locked (", std::strerror(errno),
                       "): another writer is detected by watching ", path_, " alone"));
  lock_was_missing_ = true;
  return Lock::missing;
}

/// Renames a new file into place. A process that has the old file open sees that it is no longer the owner.
void FolderOwner::make_own_file() {
  const std::string beside = concat(path_, ".", process_mark());
  file_ = Descriptor(::open(beside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  const std::string text = text_of(self_);
  errno = 0;
  const bool is_written =
      file_ && ::write(file_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  int error = file_ && errno == 0 ? ENOSPC : errno;  // a short write has no error of its own
  if (is_written) lock(file_.get());
  const bool is_placed = is_written && ::rename(beside.c_str(), path_.c_str()) == 0;
  if (is_written && !is_placed) error = errno;
  if (!is_placed) ::unlink(beside.c_str());
  require_of_system(
      is_placed, error,
      concat(key_, ": ", folder_, " cannot be written: ", std::strerror(error), "; choose another ", key_));
}

/// Returns whether the path still leads to this open file. Opens the path again, because a network file
/// system then asks its server. The server may not answer for a while.
FolderOwner::Possession FolderOwner::place_of(int file) const {
  const Descriptor now(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!now)
    return errno == ENOENT || errno == ENOTDIR || errno == ESTALE ? Possession::lost : Possession::unknown;
  const struct stat mine = status_of(file), there = status_of(now.get());
  return mine.st_ino == there.st_ino && mine.st_dev == there.st_dev ? Possession::own : Possession::lost;
}

bool FolderOwner::is_touched_by_others() const {
  const auto touched = [this] {
    const Descriptor file(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    const struct stat status = status_of(file.get());
    return std::pair(status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  };
  const auto before = touched();
  const Clock::time_point begin = Clock::now();
  while (seconds_since(begin) < patience_) {
    std::this_thread::sleep_for(poll_interval);
    if (touched() != before) return true;
  }
  return false;
}

void FolderOwner::check() const {
  const Possession place = place_of(file_.get());
  expect(place != Possession::unknown, key_, ": ", path_, " cannot be checked: ", std::strerror(errno));
  expect(place == Possession::own, key_, ": ", folder_,
         " no longer belongs to this process: another start of the run took it, or it was moved or deleted");
}

void FolderOwner::check_recently() const {
  if (is_lost_.load(std::memory_order_relaxed)) check();
}

}  // namespace lockstep
