// SPDX-License-Identifier: Apache-2.0
#include "lockstep/doctor/doctor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/comm/mpi_communicator.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/core/version.h"
#include "lockstep/net/addresses.h"
#include "lockstep/net/socket.h"

namespace lockstep {
namespace {

void append(std::vector<Finding>& findings, const std::vector<Finding>& more) {
  findings.insert(findings.end(), more.begin(), more.end());
}

/// Runs the checks that one process can make of its host.
std::vector<Finding> examine_host(const Job& job, const DoctorOptions& options, int ranks,
                                  bool writes_snapshots) {
  std::vector<Finding> findings = check_gpus(job);
  append(findings, {check_host_name(host_name()), check_port(options.listen), check_ipv6(),
                    check_binding(job, Cores::of_this_process(), ranks), check_clock()});
  append(findings, check_storage(job, options.shared_memory, ranks, writes_snapshots));
  return findings;
}

constexpr int clock_rounds = 10;
constexpr double worth_a_warning_seconds = 1.0;
constexpr double refused_by_buckets_seconds = 300.0;

/// Returns how far each rank's clock is ahead of rank 0's. Takes the least of some rounds, because a rank
/// that leaves a barrier late looks ahead.
std::vector<double> compare_clocks(const World& world) {
  const auto ranks = static_cast<size_t>(world.size());
  std::vector<double> ahead(ranks, 0.0);
  for (int round = 0; round < clock_rounds; ++round) {
    world.communicator().barrier();
    const std::chrono::duration<double> since_epoch = std::chrono::system_clock::now().time_since_epoch();
    const std::vector<double> now = world.communicator().all_gather_value(since_epoch.count());
    for (size_t rank = 0; rank < ranks; ++rank) {
      const double difference = now[rank] - now[0];
      if (round == 0 || std::abs(difference) < std::abs(ahead[rank])) ahead[rank] = difference;
    }
  }
  return ahead;
}

/// Connects to every address of other hosts (`listening`: a line for each). Returns what fails.
std::string call_others(const World& world, const std::vector<RankDevice>& places,
                        const std::vector<std::string>& listening) {
  const auto mine = static_cast<size_t>(world.rank());
  std::vector<std::string> failures;
  for (size_t peer = 0; peer < listening.size(); ++peer) {
    std::istringstream addresses(listening[peer]);
    for (std::string text; peer != mine && std::getline(addresses, text);)
      if (const std::string problem = try_to_connect(Endpoint::parse(text, 0)); !problem.empty())
        failures.push_back(
            concat(places[mine].host, " cannot reach ", places[peer].host, " at ", text, " (", problem, ")"));
  }
  return joined(failures, "; ");
}

/// Returns whether no rank before this one runs on its host. All ranks call it.
bool is_first_of_host(const World& world) {
  const std::vector<std::string> hosts = world.communicator().all_gather_text(host_name());
  const auto mine = hosts.begin() + world.rank();
  // Machines may have the same name. MPI distinguishes them by the memory that ranks share.
  return world.local_rank() == 0 || std::find(hosts.begin(), mine, *mine) == mine;
}

/// Checks that all hosts reach each other. The first rank of each host listens at each of the host's
/// addresses and connects to those of the others.
Finding check_hosts(const World& world, const std::vector<RankDevice>& places) {
  std::set<std::string> hosts;
  for (const RankDevice& place : places) hosts.insert(place.host);
  if (hosts.size() == 1) return {"hosts", Verdict::ok, "only one"};
  Communicator& ranks = world.communicator();
  const bool speaks = is_first_of_host(world);
  std::vector<Socket> sockets;
  std::string mine;
  for (const InterfaceAddress& own : speaks ? shared_addresses() : std::vector<InterfaceAddress>{}) {
    try {
      sockets.push_back(Socket::listen({.host = own.address}));
      mine += sockets.back().address().text() + "\n";
    } catch (const Error& problem) {
      log_warning(concat(host_name(), ": ", problem.what()));
    }
  }
  const std::vector<std::string> listening = ranks.all_gather_text(mine);
  std::string failure = speaks ? call_others(world, places, listening) : "";
  if (speaks && sockets.empty())
    failure = concat(host_name(), " has no address that another host could reach");
  const std::string found = joined(ranks.all_gather_text(failure), "; ");
  if (found.empty())
    return {"hosts", Verdict::ok, concat("all ", hosts.size(), " reach each other at all addresses")};
  return {"hosts", Verdict::problem, found,
          "open the firewall between them, or limit MPI and NCCL to a network that all share (--mca "
          "btl_tcp_if_include eth0, NCCL_SOCKET_IFNAME=eth0)"};
}

/// Runs the checks that need all ranks: places, processors, clocks, and connections. Every host has to reach
/// every other at each of its addresses. All ranks call it; rank 0 gets the findings.
std::vector<Finding> check_together(const World& world) {
  const std::vector<RankDevice> places = gather_places(world);
  const std::vector<std::string> sets = world.communicator().all_gather_text(instruction_set());
  return {judge_places(places), judge_processors(places, sets), judge_clocks(places, compare_clocks(world)),
          check_hosts(world, places)};
}

/// Gathers all findings on rank 0, with the names of hosts if there are several. All ranks call it.
std::vector<Finding> gather_findings(const World& world, const std::vector<Finding>& mine) {
  const std::vector<std::string> hosts = world.communicator().all_gather_text(host_name());
  const std::vector<std::string> texts = world.communicator().all_gather_text(to_json(mine));
  const bool is_one_host = std::count(hosts.begin(), hosts.end(), hosts.front()) == world.size();
  std::vector<Finding> all;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    for (Finding& finding : findings_from_json(texts[rank])) {
      if (!is_one_host) finding.name += concat(" @ ", hosts[rank]);
      all.push_back(std::move(finding));
    }
  }
  return all;
}

}  // namespace

// An unknown name is read as the first verdict.
NLOHMANN_JSON_SERIALIZE_ENUM(Verdict, {{Verdict::problem, "problem"},
                                       {Verdict::warning, "warning"},
                                       {Verdict::ok, "ok"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, name, verdict, found, advice)

std::vector<Finding> examine(const Job& job, const World& world, const DoctorOptions& options) {
  world.communicator().set_timeout(options.deadline_seconds);
  std::vector<Finding> findings;
  // A launcher may have started just one rank, so the size of the world does not show a launch.
  const bool is_launched = dynamic_cast<LocalCommunicator*>(&world.communicator()) == nullptr;
  if (is_launched) {
    findings = check_together(world);
    const bool speaks = is_first_of_host(world);
    // The checks of a host have deadlines of their own. Together they may exceed that of a collective.
    const NoTimeout no_timeout(world.communicator());
    append(findings,
           gather_findings(world, speaks ? examine_host(job, options, world.local_size(), world.is_first())
                                         : std::vector<Finding>{}));
    return findings;
  }
  const std::string library = mpi_library();
  findings = {check_user(), check_mpirun(library)};
  if (!library.empty() && findings.back().verdict != Verdict::problem)
    append(findings, check_ranks(options.program, options.deadline_seconds));
  if (!library.empty()) findings.push_back(check_lockrun(options.program, options.deadline_seconds));
  append(findings, check_srun());
  append(findings, examine_host(job, options, available_cores(), true));
  return findings;
}

std::string to_text(const std::vector<Finding>& findings) {
  size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.name.size());
  std::string text;
  for (const Finding& finding : findings) {
    const auto verdict = nlohmann::json(finding.verdict).get<std::string>();
    text += concat(left_aligned(verdict, 9), left_aligned(finding.name, width), "  ", finding.found, "\n");
    if (!finding.advice.empty()) text += concat(std::string(9 + width, ' '), "  -> ", finding.advice, "\n");
  }
  return text;
}

std::string to_json(const std::vector<Finding>& findings) {
  const auto count = [&](Verdict verdict) {
    return std::ranges::count(findings, verdict, &Finding::verdict);
  };
  const nlohmann::json report = {
      {"findings", findings}, {"problems", count(Verdict::problem)}, {"warnings", count(Verdict::warning)}};
  // Texts that a check quotes (a program's output, say) need not be UTF-8.
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<Finding> findings_from_json(const std::string& text) {
  return nlohmann::json::parse(text).at("findings").get<std::vector<Finding>>();
}

Finding judge_places(const std::vector<RankDevice>& ranks) {
  return {"ranks", Verdict::ok, concat(ranks.size(), " of them; ", joined(rank_table(ranks), "; "))};
}

Finding judge_processors(const std::vector<RankDevice>& ranks,
                         const std::vector<std::string>& instruction_sets) {
  const std::set<std::string> sets(instruction_sets.begin(), instruction_sets.end());
  if (sets.size() > 1)
    return {
        "processors", Verdict::warning,
        concat("the programs were built for different instruction sets: ", joined(sets, "; "),
               ". The results are the same, but every step waits for the slowest"),
        "build on each host with LOCKSTEP_ARCH=native, or choose nodes that are alike (srun --constraint)"};
  if (const std::string mixed = mixed_processors(ranks); !mixed.empty())
    return {"processors", Verdict::warning, mixed, "choose nodes that are alike (srun --constraint)"};
  return {"processors", Verdict::ok, concat("alike, ", *sets.begin())};
}

Finding judge_clocks(const std::vector<RankDevice>& ranks, const std::vector<double>& ahead_seconds) {
  const auto [least, most] = std::minmax_element(ahead_seconds.begin(), ahead_seconds.end());
  const auto host = [&](auto at) { return ranks[static_cast<size_t>(at - ahead_seconds.begin())].host; };
  const double apart = *most - *least;
  const std::string amount = fixed_text(apart, 3) + " s apart at most";
  if (apart < worth_a_warning_seconds) return {"clocks", Verdict::ok, amount};
  const Verdict verdict = apart < refused_by_buckets_seconds ? Verdict::warning : Verdict::problem;
  return {"clocks", verdict, concat(amount, ": ", host(most), " is ahead of ", host(least)),
          "set them by a time server (chrony); a bucket refuses requests if the clock is 15 minutes off"};
}

}  // namespace lockstep
