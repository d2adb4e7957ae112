// SPDX-License-Identifier: Apache-2.0
#include "elastic/rank_report.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep {

using Json = nlohmann::json;

static void to_json(Json& json, const FlightRecord& record) {
  json = {{"sequence", record.sequence},
          {"operation", record.operation},
          {"bytes", record.bytes},
          {"finished", record.end_nanoseconds != 0}};
}

static void from_json(const Json& json, FlightRecord& record) {
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

/// A program may print bytes that are no text.
static std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// `what` names the message in an error.
template <class Message>
static Message message_from(const std::string& text, const char* what) {
  try {
    return Json::parse(text).get<Message>();
  } catch (const Json::exception& problem) {
    throw Error(concat(what, " cannot be read: ", problem.what()));
  }
}

std::string to_json(const RankReport& report) { return text_of(Json(report)); }

std::string to_json(const RankPlan& plan) { return text_of(Json(plan)); }

RankReport report_from_json(const std::string& text) {
  return message_from<RankReport>(text, "a keeper's report");
}

RankPlan plan_from_json(const std::string& text) {
  return message_from<RankPlan>(text, "the supervisor's plan");
}

}  // namespace lockstep
