// SPDX-License-Identifier: Apache-2.0
#include "lockstep/elastic/messages.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "lockstep/core/error.h"
#include "lockstep/json/json_members.h"
#include "lockstep/net/channel.h"

namespace lockstep {

using Json = nlohmann::json;
using Field = JsonField<Json>;

static void to_json(Json& json, const std::optional<FlightRecord>& record) {
  json = nullptr;
  if (record)
    json = {{"sequence", record->sequence},
            {"operation", record->operation},
            {"bytes", record->bytes},
            {"finished", record->end_nanoseconds != 0}};
}

static void read_value(const Field& field, std::optional<FlightRecord>& last) {
  last.reset();
  if (field.is_null()) return;
  FlightRecord& record = last.emplace();
  record.sequence = field["sequence"].whole<uint64_t>();
  record.bytes = field["bytes"].whole<int64_t>();
  record.end_nanoseconds = field["finished"].flag() ? 1 : 0;
  std::strncpy(record.operation, field["operation"].text().c_str(), sizeof(record.operation) - 1);
}

static constexpr auto json_members(const Ending* /*any*/) {
  return std::tuple{JsonMember{"exit_code", &Ending::exit_code}, JsonMember{"signal", &Ending::signal}};
}

static constexpr auto json_members(const RankLogs* /*any*/) {
  return std::tuple{JsonMember{"folder", &RankLogs::folder}, JsonMember{"redirects", &RankLogs::redirects},
                    JsonMember{"tee", &RankLogs::tee}, JsonMember{"shown_ranks", &RankLogs::shown_ranks}};
}

static constexpr auto json_members(const RankPlan* /*any*/) {
  return std::tuple{JsonMember{"command", &RankPlan::command},
                    JsonMember{"environment", &RankPlan::environment},
                    JsonMember{"folder", &RankPlan::folder}, JsonMember{"logs", &RankPlan::logs}};
}

static constexpr auto json_members(const RankReport* /*any*/) {
  using Report = RankReport;
  return std::tuple{JsonMember{"rank", &Report::rank},
                    JsonMember{"host", &Report::host},
                    JsonMember{"machine", &Report::machine},
                    JsonMember{"process", &Report::process},
                    JsonMember{"step", &Report::step},
                    JsonMember{"replicas", &Report::replicas},
                    JsonMember{"snapshot_step", &Report::snapshot_step},
                    JsonMember{"snapshot_seconds", &Report::snapshot_seconds},
                    JsonMember{"phase", &Report::phase},
                    JsonMember{"has_ended", &Report::has_ended},
                    JsonMember{"ending", &Report::ending},
                    JsonMember{"was_ended", &Report::was_ended},
                    JsonMember{"is_lost", &Report::is_lost},
                    JsonMember{"stuck_seconds", &Report::stuck_seconds},
                    JsonMember{"was_stopped", &Report::was_stopped},
                    JsonMember{"lack_of_memory", &Report::lack_of_memory},
                    JsonMember{"computed_wrong", &Report::computed_wrong},
                    JsonMember{"failure", &Report::failure},
                    JsonMember{"last_lines", &Report::last_lines},
                    JsonMember{"log_file", &Report::log_file},
                    JsonMember{"stacks", &Report::stacks},
                    JsonMember{"lost_output", &Report::lost_output},
                    JsonMember{"last_collective", &Report::last_collective}};
}

static constexpr auto json_members(const NodeFacts* /*any*/) {
  return std::tuple{JsonMember{"node_rank", &NodeFacts::node_rank},
                    JsonMember{"host", &NodeFacts::host},
                    JsonMember{"process", &NodeFacts::process},
                    JsonMember{"address", &NodeFacts::address},
                    JsonMember{"slots", &NodeFacts::slots},
                    JsonMember{"run", &NodeFacts::run},
                    JsonMember{"least_nodes", &NodeFacts::least_nodes},
                    JsonMember{"most_nodes", &NodeFacts::most_nodes}};
}

static constexpr auto json_members(const NodeMessage* /*any*/) {
  return std::tuple{JsonMember{"kind", &NodeMessage::kind}, JsonMember{"number", &NodeMessage::number},
                    JsonMember{"code", &NodeMessage::code}, JsonMember{"text", &NodeMessage::text},
                    JsonMember{"facts", &NodeMessage::facts}};
}

/// Returns the JSON text. A program's output may contain anything, so bytes that are not UTF-8 are replaced.
static std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Parses a message. Throws Error that begins with `what` if the text is not one. The sender is at fault, so
/// it is no UserError.
template <class Message>
static Message message_from(std::string_view text, const char* what) {
  try {
    Message message;
    read_value(Field(text, what, Channel::most_bytes), message);
    return message;
  } catch (const UserError& problem) {
    throw Error(problem.what());
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

std::string NodeFacts::name() const {
  return concat("node ", node_rank < 0 ? "?" : std::to_string(node_rank), " (", host, ", ", address, ")");
}

std::string NodeMessage::encode() const { return text_of(Json(*this)); }

NodeMessage NodeMessage::decode(std::string_view bytes) {
  return message_from<NodeMessage>(bytes, "a message between nodes");
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
