// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.h"

#include <fcntl.h>
#include <memory>
#include <mutex>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "lockstep/core/descriptor.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/terminal.h"

namespace lockstep {
namespace {

struct Log {
  std::mutex mutex;
  std::string prefix;
  std::shared_ptr<spdlog::sinks::sink> console = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  spdlog::logger logger{"lockstep", console};

  Log() {
    console->set_level(spdlog::level::info);
    logger.set_level(spdlog::level::debug);  // of messages for the file alone
    logger.flush_on(spdlog::level::debug);
  }
};

Log& log() {
  static Log* instance = new Log;
  return *instance;
}

void write(spdlog::level::level_enum level, const char* word, const std::string& message) {
  const std::lock_guard lock(log().mutex);
  // On a terminal, erases the line before a message. A progress bar of this or another process may be there.
  log().console->set_pattern(find_terminal().shows_errors ? "\r\x1b[K%v" : "%v");
  // Info is logged by rank 0 for all ranks, without a prefix. Warnings and errors name their rank.
  log().logger.log(level, "{}{}{}", level <= spdlog::level::info ? "" : log().prefix, word, message);
}

}  // namespace

void log_info(const std::string& message) { write(spdlog::level::info, "", message); }
void log_warning(const std::string& message) { write(spdlog::level::warn, "warning: ", message); }
void log_error(const std::string& message) { write(spdlog::level::err, "error: ", message); }
void log_to_file(const std::string& message) { write(spdlog::level::debug, "", message); }

void set_log_rank(int rank, bool quiet) {
  const std::lock_guard lock(log().mutex);
  log().prefix = concat("[rank ", rank, "] ");
  log().console->set_level(quiet ? spdlog::level::warn : spdlog::level::info);
}

void silence_log_console() {
  const std::lock_guard lock(log().mutex);
  log().console->set_level(spdlog::level::off);
}

void set_log_file(const std::string& path) {
  // spdlog would follow a link and wait for the reader of a FIFO.
  std::string problem = open_own_file(path, O_WRONLY | O_CREAT | O_APPEND).reason;
  try {
    if (problem.empty()) {
      auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
      sink->set_pattern("%Y-%m-%d %H:%M:%S.%e %v");
      const std::lock_guard lock(log().mutex);
      log().logger.sinks() = {log().console, sink};
    }
  } catch (const spdlog::spdlog_ex& failure) {
    problem = failure.what();
  }
  if (!problem.empty()) log_warning(concat("cannot open the log file ", path, ": ", problem));
}

}  // namespace lockstep
