// SPDX-License-Identifier: Apache-2.0
#include "elastic/messages.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"

namespace lockstep {

using Json = nlohmann::json;

static void to_json(Json& json, const std::optional<FlightRecord>& record) {
  json = nullptr;
  if (record)
    json = {{"sequence", record->sequence},
            {"operation", record->operation},
            {"bytes", record->bytes},
            {"finished", record->end_nanoseconds != 0}};
}

static void from_json(const Json& json, std::optional<FlightRecord>& last) {
  last.reset();
  if (json.is_null()) return;
  FlightRecord& record = last.emplace();
  record = {.sequence = json.at("sequence"),
            .bytes = json.at("bytes"),
            .end_nanoseconds = json.at("finished").get<bool>() ? 1 : 0};
  std::strncpy(record.operation, json.at("operation").get<std::string>().c_str(),
               sizeof(record.operation) - 1);
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ending, exit_code, signal)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankPlan, command, environment, folder)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankReport, rank, host, machine, process, step, replicas, snapshot_step,
                                   snapshot_seconds, phase, has_ended, ending, was_ended, is_lost,
                                   stuck_seconds, was_stopped, failure, last_lines, last_collective)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeFacts, node_rank, host, process, address, network, slots, run,
                                   least_nodes, most_nodes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeMessage, kind, process, code, text, host, facts)

/// Returns the JSON text. A program's output may contain anything, so bytes that are not UTF-8 are replaced.
static std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Parses a message. If the text is not one, throws Error that begins with `problem`.
template <class Message>
static Message message_from(std::string_view text, const char* problem) {
  try {
    return Json::parse(text).get<Message>();
  } catch (const Json::exception& failure) {
    throw Error(concat(problem, ": ", failure.what()));
  }
}

std::string to_json(const RankReport& report) { return text_of(Json(report)); }

std::string to_json(const RankPlan& plan) { return text_of(Json(plan)); }

RankReport report_from_json(const std::string& text) {
  return message_from<RankReport>(text, "a keeper's report cannot be read");
}

RankPlan plan_from_json(const std::string& text) {
  return message_from<RankPlan>(text, "the supervisor's plan cannot be read");
}

std::string NodeFacts::name() const {
  return concat("node ", node_rank < 0 ? "?" : std::to_string(node_rank), " (", host, ", ", address, ")");
}

std::string NodeMessage::encode() const { return text_of(Json(*this)); }

NodeMessage NodeMessage::decode(std::string_view bytes) {
  const auto message = message_from<NodeMessage>(bytes, "not a message between nodes");
  expect(message.kind >= Kind::join && message.kind < Kind::count, "unknown message ", int(message.kind));
  return message;
}

std::vector<std::string> last_shown_lines(const std::string& text, size_t most) {
  std::istringstream stream(text);
  std::vector<std::string> all;
  for (std::string line; std::getline(stream, line);) {
    line.erase(0, line.rfind('\r') + 1);
    for (size_t at = 0; (at = line.find("\x1b[K", at)) != std::string::npos;) line.erase(at, 3);
    all.push_back(line);
  }
  if (all.size() > most) all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(most));
  return all;
}

}  // namespace lockstep
