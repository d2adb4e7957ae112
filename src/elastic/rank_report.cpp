// SPDX-License-Identifier: Apache-2.0
#include "elastic/rank_report.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

Json parse(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  expect(json.is_object(), "a message between a keeper and its supervisor cannot be read");
  return json;
}

Json json_of(const FlightRecord& record) {
  return {{"sequence", record.sequence},
          {"operation", record.operation},
          {"bytes", record.bytes},
          {"finished", record.end_nanoseconds != 0}};
}

FlightRecord flight_record(const Json& json) {
  FlightRecord record{.sequence = json.at("sequence"),
                      .bytes = json.at("bytes"),
                      .end_nanoseconds = json.at("finished").get<bool>() ? 1 : 0};
  std::strncpy(record.operation, json.at("operation").get<std::string>().c_str(),
               sizeof(record.operation) - 1);
  return record;
}

}  // namespace

std::string to_json(const RankReport& report) {
  const Json json = {{"rank", report.rank},
                     {"host", report.host},
                     {"process", report.process},
                     {"step", report.step},
                     {"snapshot_step", report.snapshot_step},
                     {"snapshot_seconds", report.snapshot_seconds},
                     {"phase", report.phase},
                     {"has_ended", report.has_ended},
                     {"exit_code", report.ending.exit_code},
                     {"signal", report.ending.signal},
                     {"was_ended", report.was_ended},
                     {"is_lost", report.is_lost},
                     {"stuck_seconds", report.stuck_seconds},
                     {"was_stopped", report.was_stopped},
                     {"failure", report.failure},
                     {"last_lines", report.last_lines},
                     {"last_collective", json_of(report.last_collective)}};
  // A program may print bytes that are no text.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankReport report_from_json(const std::string& text) {
  const Json json = parse(text);
  try {
    return {.rank = json.at("rank"),
            .host = json.at("host"),
            .process = json.at("process"),
            .step = json.at("step"),
            .snapshot_step = json.at("snapshot_step"),
            .snapshot_seconds = json.at("snapshot_seconds"),
            .phase = json.at("phase"),
            .has_ended = json.at("has_ended"),
            .ending = {.exit_code = json.at("exit_code"), .signal = json.at("signal")},
            .was_ended = json.at("was_ended"),
            .is_lost = json.at("is_lost"),
            .stuck_seconds = json.at("stuck_seconds"),
            .was_stopped = json.at("was_stopped"),
            .failure = json.at("failure"),
            .last_lines = json.at("last_lines"),
            .last_collective = flight_record(json.at("last_collective"))};
  } catch (const Json::exception& problem) {
    throw Error(concat("a keeper's report is incomplete: ", problem.what()));
  }
}

std::string to_json(const RankPlan& plan) {
  const Json json = {{"command", plan.command}, {"environment", plan.environment}, {"folder", plan.folder}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankPlan plan_from_json(const std::string& text) {
  const Json json = parse(text);
  try {
    return {
        .command = json.at("command"), .environment = json.at("environment"), .folder = json.at("folder")};
  } catch (const Json::exception& problem) {
    throw Error(concat("the supervisor's plan is incomplete: ", problem.what()));
  }
}

}  // namespace lockstep
