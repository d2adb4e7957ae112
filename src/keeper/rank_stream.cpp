// SPDX-License-Identifier: Apache-2.0
#include "lockstep/keeper/rank_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/process.h"

namespace lockstep {
namespace {

/// Bytes that are moved at once. A rank that writes all the time cannot block its keeper.
constexpr size_t most_at_once = 65536;
/// Bytes that are read when the rank has ended: more than a pipe or a pseudo-terminal holds. A process that
/// outlives the rank may write on without end.
constexpr size_t most_at_end = size_t(1) << 20;
/// Bytes that wait for the console before the rank does, while it runs and when it is to stop.
constexpr size_t most_pending_bytes = size_t(1) << 20;
constexpr size_t most_pending_of_stopping_bytes = size_t(16) << 20;
/// Last bytes that are kept.
constexpr size_t last_bytes_kept = 16384;

/// Opens a pipe or terminal that this process has open once more, to write to it without waiting. The flag
/// for that would hold for all processes that share the first descriptor. Returns nothing for any other file.
Descriptor opened_again(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !(S_ISFIFO(status.st_mode) || ::isatty(descriptor) == 1))
    return {};
  return Descriptor(
      ::open(concat("/proc/self/fd/", descriptor).c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
}

/// Returns the first bytes of a text that one write() takes as a whole. They end with a line if possible,
/// because lines of several ranks must not mix in one pipe. poll() promises this room in a pipe.
std::string_view whole_lines(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text;
  text = text.substr(0, PIPE_BUF);
  const size_t end = text.rfind('\n');
  return end == std::string_view::npos ? text : text.substr(0, end + 1);
}

}  // namespace

RankStream::RankStream(const Route& route)
    : route_(route), own_console_(opened_again(route.console)), most_pending_(most_pending_bytes) {
  if (own_console_) route_.console = own_console_.get();
  if (!route.file.empty()) open_file();
  if (route.is_terminal && open_terminal()) return;
  Pipe pipe(O_NONBLOCK);
  rank_ = std::move(pipe.reading);
  input_ = std::move(pipe.writing);
}

bool RankStream::open_terminal() {
  Descriptor rank(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  char path[64];
  if (!rank || ::grantpt(rank.get()) != 0 || ::unlockpt(rank.get()) != 0 ||
      ::ptsname_r(rank.get(), path, sizeof path) != 0)
    return false;
  Descriptor input(::open(path, O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios settings{};
  if (!input || ::tcgetattr(input.get(), &settings) != 0) return false;
  ::cfmakeraw(&settings);  // passes all bytes unchanged
  if (::tcsetattr(input.get(), TCSANOW, &settings) != 0) return false;
  rank_ = std::move(rank);
  input_ = std::move(input);
  return true;
}

void RankStream::open_file() {
  std::error_code folder;
  std::filesystem::create_directories(std::filesystem::path(route_.file).parent_path(), folder);
  OpenedFile opened = open_own_file(route_.file, O_WRONLY | O_CREAT | O_APPEND);
  file_ = std::move(opened.file);
  if (file_) return;
  problem_ = concat("cannot write ", route_.file, ": ", folder ? folder.message() : opened.reason);
  try {
    require_of_system(false, folder ? folder.value() : opened.error, problem_);
  } catch (const UserError&) {
    throw;
  } catch (const Error&) {
    // With a full disk a rank runs without its log.
  }
}

void RankStream::watch(std::vector<pollfd>& entries) const {
  // poll() ignores -1. It would report a closed end all the time.
  entries.push_back({is_blocked() ? -1 : rank_.get(), POLLIN, 0});
  entries.push_back({has_pending() && !is_held_ ? route_.console : -1, POLLOUT, 0});
}

void RankStream::pass_on() {
  if (!is_blocked()) take(most_at_once);
  if (!is_held_) write_pending();
}

void RankStream::take_rest() {
  take(most_at_end);
  end_line();
}

void RankStream::let_rank_stop() { most_pending_ = most_pending_of_stopping_bytes; }

void RankStream::take(size_t most_bytes) {
  std::array<char, 8192> part;
  while (rank_ && most_bytes > 0) {
    const ssize_t count = ::read(rank_.get(), part.data(), std::min(part.size(), most_bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    // A pseudo-terminal without writers reports EIO, a pipe its end.
    if (count <= 0) return rank_.reset();
    const std::string_view bytes(part.data(), static_cast<size_t>(count));
    add(bytes);
    last_bytes_ += bytes;
    if (last_bytes_.size() > last_bytes_kept) last_bytes_.erase(0, last_bytes_.size() - last_bytes_kept);
    most_bytes -= bytes.size();
  }
}

void RankStream::add(std::string_view bytes) {
  write_file(bytes);
  if (route_.console < 0) return;
  if (route_.tag.empty()) {
    pending_ += bytes;
  } else {
    add_lines(bytes);
  }
}

void RankStream::add_lines(std::string_view bytes) {
  line_ += bytes;
  size_t begin = 0;
  for (size_t end = 0; (end = line_.find('\n', begin)) != std::string::npos; begin = end + 1)
    pending_.append(route_.tag).append(line_, begin, end + 1 - begin);
  line_.erase(0, begin);
  if (line_.size() > most_at_once) end_line();
}

void RankStream::end_line() {
  if (!line_.empty()) pending_ += route_.tag + std::exchange(line_, "") + "\n";
}

void RankStream::write_file(std::string_view bytes) {
  while (file_ && !bytes.empty()) {
    const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      problem_ = concat("cannot write ", route_.file, ": ", std::strerror(errno));
      return file_.reset();
    }
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

void RankStream::write_pending() {
  size_t written = 0;
  while (written < std::min(pending_.size(), most_at_once)) {
    pollfd entry{route_.console, POLLOUT, 0};
    if (::poll(&entry, 1, 0) <= 0) break;
    const std::string_view part = whole_lines(std::string_view(pending_).substr(written));
    const ssize_t some = ::write(route_.console, part.data(), part.size());
    if (some < 0 && errno == EINTR) continue;
    if (some < 0 && errno == EAGAIN) break;
    if (some < 0) {
      // The rank runs on. A reader may leave.
      if (errno != EPIPE && errno != EIO) problem_ = std::strerror(errno);
      route_.console = -1;
      return pending_.clear();
    }
    written += static_cast<size_t>(some);
  }
  pending_.erase(0, written);
}

}  // namespace lockstep
