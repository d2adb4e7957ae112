// SPDX-License-Identifier: Apache-2.0
#include "core/log.h"

#include <memory>
#include <mutex>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "core/error.h"

namespace lockstep {
namespace {

struct Log {
  std::mutex mutex;
  std::string prefix;
  std::shared_ptr<spdlog::sinks::sink> console = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  spdlog::logger logger{"lockstep", console};

  Log() {
    console->set_pattern("%v");
    logger.flush_on(spdlog::level::info);
  }
};

Log& log() {
  static Log* instance = new Log;
  return *instance;
}

void write(spdlog::level::level_enum level, const char* word, const std::string& message) {
  const std::lock_guard lock(log().mutex);
  // What all ranks have in common only rank 0 says; who is in trouble matters.
  log().logger.log(level, "{}{}{}", level == spdlog::level::info ? "" : log().prefix, word, message);
}

}  // namespace

void log_info(const std::string& message) { write(spdlog::level::info, "", message); }
void log_warning(const std::string& message) { write(spdlog::level::warn, "warning: ", message); }
void log_error(const std::string& message) { write(spdlog::level::err, "error: ", message); }

void set_log_rank(int rank, bool quiet) {
  const std::lock_guard lock(log().mutex);
  log().prefix = concat("[rank ", rank, "] ");
  log().console->set_level(quiet ? spdlog::level::warn : spdlog::level::info);
}

void set_log_file(const std::string& path) {
  const std::lock_guard lock(log().mutex);
  try {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    file->set_pattern("%Y-%m-%d %H:%M:%S.%e %v");
    log().logger.sinks() = {log().console, file};
  } catch (const spdlog::spdlog_ex& failure) {
    throw Error(concat("cannot open the log file ", path, ": ", failure.what()));
  }
}

}  // namespace lockstep
