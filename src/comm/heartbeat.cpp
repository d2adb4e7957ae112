// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/heartbeat.h"

#include <cstring>
#include <filesystem>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/log.h"

namespace lockstep {
namespace {

constexpr const char* page_variable = "LOCKSTEP_HEARTBEAT";

std::shared_ptr<HeartbeatPage> own_page() {
  try {
    if (is_supervised()) return map_heartbeat(environment(page_variable), false);
  } catch (const Error& failure) {
    log_warning(concat(failure.what(), "; a stuck rank will not be detected"));
  }
  return std::make_shared<HeartbeatPage>();
}

}  // namespace

std::shared_ptr<HeartbeatPage> map_heartbeat(const std::string& path, bool create) {
  const auto memory = map_file(path, sizeof(HeartbeatPage), create);
  auto* page = create ? new (memory.get()) HeartbeatPage : reinterpret_cast<HeartbeatPage*>(memory.get());
  return {memory, page};
}

HeartbeatPage& heartbeat() {
  // Never unmapped, because a rank may report its failure until its very end.
  static const auto* page = new std::shared_ptr<HeartbeatPage>(own_page());
  return **page;
}

int restart_count() {
  return number_from_environment("LOCKSTEP_RESTART_COUNT", number_from_environment("SLURM_RESTART_COUNT"));
}

bool is_supervised() { return !environment(page_variable).empty(); }

void report_progress(const char* phase) {
  HeartbeatPage& page = heartbeat();
  if (std::strncmp(page.phase, phase, sizeof(page.phase) - 1) != 0)
    std::strncpy(page.phase, phase, sizeof(page.phase) - 1);
  page.beats.fetch_add(1, std::memory_order_relaxed);
}

void report_failure(const std::string& message) {
  HeartbeatPage& page = heartbeat();
  if (page.failure[0] == '\0') std::strncpy(page.failure, message.c_str(), sizeof(page.failure) - 1);
}

void report_log_file(const std::string& path) {
  const std::string absolute = std::filesystem::absolute(path);
  HeartbeatPage& page = heartbeat();
  if (absolute.size() < sizeof(page.log_file))
    std::strncpy(page.log_file, absolute.c_str(), sizeof(page.log_file) - 1);
}

}  // namespace lockstep
