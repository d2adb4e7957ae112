// SPDX-License-Identifier: Apache-2.0
#include "lockstep/elastic/root_cause.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"

namespace lockstep {

using Json = nlohmann::json;

namespace {

/// Returns whether a rank ended because it waited for another one. Its failure message shows that.
bool is_consequence(const RankReport& report) {
  if (report.ending.signal != 0) return false;
  for (const char* words : {" s for the other ranks", "did not arrive", "never entered collective"})
    if (report.failure.find(words) != std::string::npos) return true;
  return false;
}

/// Kinds of ends, the likeliest cause first. Among ranks of the same kind, the first to end is the cause.
enum Remoteness { wrong, cause, stopped, stuck, lost, left, consequence, none };

Remoteness remoteness(const RankReport& report) {
  if (report.computed_wrong) return wrong;
  if (report.was_stopped) return stopped;
  if (report.stuck_seconds > 0) return stuck;
  if (report.is_lost) return lost;
  if (!report.has_ended || report.was_ended || report.ending.is_success()) return none;
  if (report.ending.code() == exit_stopped) return left;
  return is_consequence(report) ? consequence : cause;
}

std::string who(const RankReport& report) {
  const std::string process = report.process == 0 ? "" : concat(", pid ", report.process);
  return concat("rank ", report.rank, " (host ", report.host, process, ")");
}

std::string how(const RankReport& report) {
  if (report.was_stopped) return "was stopped (SIGSTOP) and did not continue";
  if (report.stuck_seconds > 0)
    return concat("was stuck: no heartbeat for ", static_cast<int>(report.stuck_seconds), " s");
  if (report.is_lost) return "was lost: its keeper is gone";
  if (report.was_ended) return "made no progress, and the others waited for it";
  const std::string why =
      report.lack_of_memory.empty() ? "" : concat(" for lack of memory (", report.lack_of_memory, ")");
  if (report.ending.signal != 0) return "was ended by " + describe(report.ending) + why;
  if (report.ending.code() == exit_stopped)
    return "stopped after a snapshot (exit code 75), which lockrun had not asked for";
  return "left with " + describe(report.ending) + why;
}

std::string where(const RankReport& report) {
  if (report.step == 0 && report.phase.empty()) return "";
  return concat(" at step ", report.step, report.phase.empty() ? "" : concat(" (", report.phase, ")"));
}

/// Returns whether the last lines of a rank's stderr say more than the failure that is reported already.
bool says_more(const RankReport& report) {
  return std::ranges::any_of(report.last_lines, [&](const std::string& line) {
    return report.failure.empty() || line.find(report.failure) == std::string::npos;
  });
}

/// Returns the rank that the others waited for: the one that is furthest behind in collectives. Stuck and
/// waiting ranks end at about the same time, so the order of their ends does not show it.
const RankReport* awaited(const std::vector<RankReport>& reports) {
  const RankReport* behind = nullptr;
  uint64_t ahead = 0;
  for (const RankReport& report : reports) {
    if (report.is_lost || !report.last_collective) continue;
    const uint64_t sequence = report.last_collective->sequence;
    ahead = std::max(ahead, sequence);
    if (report.process != 0 && (!behind || sequence < behind->last_collective->sequence)) behind = &report;
  }
  return behind && behind->last_collective->sequence < ahead ? behind : nullptr;
}

/// Returns a report as JSON, with exit_code and signal next to the other fields.
nlohmann::json told(const RankReport& report) {
  nlohmann::json json = nlohmann::json::parse(to_json(report));
  const nlohmann::json ending = json.at("ending");
  json.erase("ending");
  json.update(ending);
  return json;
}

}  // namespace

const RankReport* root_cause(const AttemptFailure& failure) {
  const auto first = std::ranges::min_element(failure.reports, {}, remoteness);
  if (first == failure.reports.end() || remoteness(*first) == none) return nullptr;
  if (remoteness(*first) == stuck || remoteness(*first) == consequence)
    if (const RankReport* rank = awaited(failure.reports)) return rank;
  // A lost launcher or node takes its keepers along, so the lost rank is not the cause.
  if (first->is_lost && !failure.other_cause.empty()) return nullptr;
  return &*first;
}

int exit_code(const AttemptFailure& failure) {
  const RankReport* rank = root_cause(failure);
  const bool ended_itself = rank && !rank->was_ended && !rank->is_lost && !rank->ending.is_success();
  if (ended_itself && rank->ending.code() != exit_stopped) return rank->ending.code();
  if (!rank && failure.launcher_ending && !failure.launcher_ending->is_success())
    return failure.launcher_ending->code();
  return 1;
}

std::string ranks_behind(const std::vector<RankReport>& reports) {
  std::map<int, FlightRecord> known;
  for (const RankReport& report : reports)
    if (!report.is_lost && report.last_collective) known[report.rank] = *report.last_collective;
  return ranks_behind(known);
}

std::string describe(const AttemptFailure& failure) {
  const RankReport* rank = root_cause(failure);
  std::string text = rank ? concat(who(*rank), " ", how(*rank), where(*rank)) : failure.other_cause;
  if (rank && !rank->failure.empty()) text += ": " + rank->failure;
  const std::string behind = ranks_behind(failure.reports);
  if (!behind.empty()) text += "\n  " + behind;
  if (rank && !rank->stacks.empty()) text += "\n  stacks of its threads are in " + rank->stacks;
  if (rank && says_more(*rank)) {
    text += concat("\n  last lines of rank ", rank->rank, ":");
    for (const std::string& line : rank->last_lines) text += "\n    " + line;
  }
  return text;
}

std::string failure_json(const AttemptFailure& failure, int attempt) {
  const RankReport* rank = root_cause(failure);
  Json json = {{"message", describe(failure)},
               {"attempt", attempt},
               {"exit_code", exit_code(failure)},
               {"root_cause", rank ? told(*rank) : Json()},
               {"behind", ranks_behind(failure.reports)},
               {"ranks", Json::array()}};
  for (const RankReport& report : failure.reports) json["ranks"].push_back(told(report));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
