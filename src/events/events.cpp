// SPDX-License-Identifier: Apache-2.0
#include "lockstep/events/events.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unistd.h>

#include "lockstep/core/descriptor.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/log.h"
#include "lockstep/json/json_field.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Field = JsonField<Json>;

constexpr size_t most_line_bytes = 65536;

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string path_in(const std::string& folder) { return concat(folder, "/", events_file); }

/// Returns whether the file ends within a line, which a crash or a full disk has torn.
bool is_torn(int file) {
  const off_t bytes = ::lseek(file, 0, SEEK_END);
  char last = '\n';
  return bytes > 0 && ::pread(file, &last, 1, bytes - 1) == 1 && last != '\n';
}

RunEvent event_of(const Field& line) {
  RunEvent event{.what = line["event"].text(),
                 .unix_seconds = line["time"].number(),
                 .step = line["step"].whole<int64_t>(0)};
  for (const auto& [name, value] : line.members())
    if (name != "event" && name != "time" && name != "step") event.facts[name] = value.text();
  return event;
}

}  // namespace

void append_event(const std::string& folder, const std::string& what, int64_t step,
                  const std::map<std::string, std::string>& facts) {
  const std::string path = path_in(folder);
  Json line = {{"event", what}, {"time", std::round(unix_seconds() * 1000) / 1000}, {"step", step}};
  for (const auto& [name, value] : facts) line[name] = value;
  const OpenedFile opened = open_own_file(path, O_RDWR | O_CREAT | O_APPEND);
  if (!opened.file) return log_warning(concat(path, " cannot be written: ", opened.reason));
  // One write, so that the lines of several processes do not mix. Bytes that are not UTF-8 become U+FFFD.
  const std::string text = concat(is_torn(opened.file.get()) ? "\n" : "",
                                  line.dump(-1, ' ', false, Json::error_handler_t::replace), "\n");
  const ssize_t written = ::write(opened.file.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()))
    log_warning(concat(path, " lacks an event: ", written < 0 ? std::strerror(errno) : "the disk is full"));
}

std::vector<RunEvent> read_events(const std::string& folder) {
  std::vector<RunEvent> events;
  std::istringstream lines(read_file(path_in(folder)).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    try {
      events.push_back(event_of(Field(line, events_file, most_line_bytes)));
    } catch (const UserError&) {
      // The next line begins anew.
    }
  }
  return events;
}

}  // namespace lockstep
