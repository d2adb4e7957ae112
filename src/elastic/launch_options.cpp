// SPDX-License-Identifier: Apache-2.0
#include "lockstep/elastic/launch_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <sstream>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/log.h"
#include "lockstep/core/process.h"
#include "lockstep/core/terminal.h"
#include "lockstep/core/text.h"
#include "lockstep/core/version.h"
#include "lockstep/net/addresses.h"

namespace lockstep {
namespace {

constexpr const char* usage =
    R"(lockrun [options] [--] program [arguments]
Starts a program on several ranks, watches them, and restarts them after a failure.
Exit codes: 0 done; 2 bad usage, never restarted; 75 stopped on request after a snapshot; else the failure's.)";

/// Texts of options that need more than a conversion.
struct Texts {
  std::string nproc;
  std::string nnodes;
  std::string master_address;
  std::string rendezvous_settings;
  std::string backend;
  bool standalone = false;
  std::string ignored;
  bool ignored_flag = false;
  std::vector<const CLI::Option*> missed;  ///< ignored options that a user may miss
};

/// A check of an option's text. Its message says what is accepted.
CLI::Validator expected(const std::string& what, const std::function<bool(const std::string&)>& accepts) {
  return {[=](const std::string& text) {
            return accepts(text) ? std::string() : concat("expected ", what, ", not '", text, "'");
          },
          ""};
}

CLI::Validator number_from_zero(bool may_be_zero) {
  return expected(may_be_zero ? "a number from 0 up" : "a number above 0", [=](const std::string& text) {
    const double number = number_in<double>(text).value_or(-1);
    return std::isfinite(number) && (number > 0 || (may_be_zero && number == 0));
  });
}

/// Adds an option for a path, where a leading ~/ means HOME.
void add_path(CLI::App& app, const std::string& name, std::string& path, const std::string& help) {
  app.add_option(name, path, help)->transform([name](const std::string& text) {
    return expanded_path(text, name + ": ");
  });
}

/// Adds torchrun's options that lockrun accepts without effect. The first ones would change a run, so
/// log_ignored() names them.
void add_ignored(CLI::App& app, Texts& texts) {
  constexpr const char* group = "Accepted for compatibility with torchrun, without effect";
  for (const char* name : {"--role", "--signals-to-handle", "--logs-specs", "--numa-binding"})
    texts.missed.push_back(app.add_option(name, texts.ignored)->group(group));
  for (const char* name : {"--monitor-interval", "--start-method"})
    app.add_option(name, texts.ignored)->group(group);
  for (const char* name : {"--no-python", "--run-path"}) app.add_flag(name, texts.ignored_flag)->group(group);
}

void log_ignored(const Texts& texts) {
  std::vector<std::string> given;
  for (const CLI::Option* option : texts.missed)
    if (option->count() > 0) given.push_back(option->get_name());
  if (!given.empty())
    log_info(concat("lockrun: without effect here: ", joined(given), "; see lockrun --help"));
}

void add_logs(CLI::App& app, RankLogs& logs) {
  const CLI::Validator is_choice =
      expected("0 (none), 1 (stdout), 2 (stderr) or 3 (both), or numbers of local ranks as in 0:1,1:3",
               [](const std::string& text) { return streams_in(text, 0).has_value(); });
  add_path(app, "--log-dir", logs.folder,
           "folder for the ranks' logs, and for failure.json, which describes the last failure");
  app.add_option("-r,--redirects", logs.redirects,
                 "what each rank writes only to a file in --log-dir: 1 stdout, 2 stderr, 3 both; or by local "
                 "rank, such as 0:1,1:3")
      ->check(is_choice);
  app.add_option("-t,--tee", logs.tee, "what goes to a file and, tagged, to the console")->check(is_choice);
  app.add_option("--local-ranks-filter", logs.shown_ranks,
                 "local ranks whose output lockrun prints, such as 0,2 (default all)")
      ->check(expected("local ranks as in 0,2",
                       [](const std::string& text) { return has_rank(text, 0).has_value(); }));
}

void add_options(CLI::App& app, LaunchOptions& options, Texts& texts) {
  NodeOptions& nodes = options.nodes;
  app.set_help_flag("-h,--help", "print this text");
  app.set_version_flag("--version", version_text(), "print the version of Lockstep and how it was built");
  app.add_option(
      "--nproc,--nproc-per-node", texts.nproc,
      "ranks on each node: a number, gpu (one per GPU), cpu (one per core) or auto (gpu, else cpu); "
      "default 1, or from the host file or Slurm");
  app.add_option("--nnodes", texts.nnodes,
                 "nodes: a number or MIN:MAX (default 1, or all of the host file or allocation)");
  add_path(app, "--hostfile", options.hostfile, "hosts, in mpirun's format; read before every start");
  app.add_option("--max-restarts", options.max_restarts,
                 "restarts without a newer snapshot before giving up (default 3)")
      ->check(number_from_zero(true));
  app.add_option(
         "--grace", options.grace_seconds,
         "seconds that ranks have to stop, plus the time of snapshots, before they are killed (default 30)")
      ->check(number_from_zero(true));
  app.add_option(
         "--via", options.via,
         "launcher of the ranks: pmix (lockrun itself), mpirun or srun (default auto: srun in a Slurm "
         "allocation, mpirun for a host file with other hosts, else pmix)")
      ->check(CLI::IsMember({"auto", "pmix", "mpirun", "srun"}));
  add_logs(app, options.logs);
  app.add_flag("--standalone", texts.standalone, "use this host only");
  app.add_option("--node-rank", nodes.node_rank, "this node's number; 0 waits for the others");
  app.add_option("--rdzv-endpoint", nodes.endpoint, "host[:port] of node 0, where the nodes meet");
  app.add_option("--rdzv-id", nodes.id, "the run's name, the same on every node");
  app.add_option("--rdzv-backend", texts.backend, "static or c10d, which mean the same here");
  app.add_option("--rdzv-conf", texts.rendezvous_settings, "join_timeout=S,last_call_timeout=S,...");
  app.add_option("--rdzv-timeout", nodes.timeout_seconds, "seconds to wait for other nodes (default 600)")
      ->check(number_from_zero(false));
  add_path(app, "--rdzv-secret-file", nodes.secret_file, "file with the run's secret; else LOCKRUN_SECRET");
  app.add_option("--interface,--local-addr", nodes.local_address, "this host's address to use");
  app.add_option("--master-addr", texts.master_address, "the endpoint, if --rdzv-endpoint is not given");
  app.add_option("--master-port", options.master_port, "port of --master-addr (default 29500)");
  add_ignored(app, texts);
}

/// Replaces underscores by dashes: "--nproc_per_node=4" -> "--nproc-per-node=4".
std::string with_dashes(std::string argument) {
  const size_t end = std::min(argument.find('='), argument.size());
  if (argument.starts_with("--")) std::replace(argument.begin(), argument.begin() + end, '_', '-');
  return argument;
}

[[noreturn]] void refuse_option(const CLI::App& app, const std::string& name) {
  const std::string word = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  std::string closest;
  std::optional<size_t> least;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& known : option->get_lnames()) {
      const std::optional<size_t> slips = slips_between(word, known);
      if (!slips || (least && *slips >= *least)) continue;
      closest = "--" + known;
      least = slips;
    }
  throw UserError(concat("lockrun does not know ", name,
                         closest.empty() ? "; see lockrun --help" : concat("; did you mean ", closest, "?")));
}

/// Returns lockrun's options: all arguments before "--", or before the first one that is not an option.
std::vector<std::string> take_options(const CLI::App& app, const std::vector<std::string>& arguments,
                                      std::vector<std::string>& command) {
  std::vector<std::string> options;
  size_t at = 0;
  for (; at < arguments.size() && arguments[at].starts_with("-") && arguments[at] != "--"; ++at) {
    const std::string argument = with_dashes(arguments[at]);
    const std::string name = argument.substr(0, argument.find('='));
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr) refuse_option(app, name);
    options.push_back(argument);
    const bool takes_next = option->get_expected_min() > 0 && argument.find('=') == std::string::npos;
    if (takes_next && at + 1 < arguments.size()) options.push_back(arguments[++at]);
  }
  if (at < arguments.size() && arguments[at] == "--") ++at;
  command.assign(arguments.begin() + static_cast<ptrdiff_t>(at), arguments.end());
  return options;
}

void name_variables(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() || option->check_lname("help") || option->check_lname("version"))
      continue;
    std::string name = upper_case(option->get_lnames().back());
    std::replace(name.begin(), name.end(), '-', '_');
    option->envname("PET_" + name);
  }
}

int positive_number(const std::string& name, const std::string& text) {
  const int number = number_in<int>(text).value_or(0);
  require(number > 0, name, " = '", text, "' is not a number from 1 up");
  return number;
}

int ranks_of(const std::string& text) {
  if (text == "cpu") return available_cores();
  if (text == "auto") return count_gpus() > 0 ? count_gpus() : available_cores();
  if (text != "gpu") return positive_number("--nproc", text);
  require(count_gpus() > 0, "--nproc gpu: ", why_no_gpu());
  return count_gpus();
}

void set_nodes(NodeOptions& nodes, const std::string& text) {
  const size_t colon = text.find(':');
  nodes.least_nodes = positive_number("--nnodes", text.substr(0, colon));
  nodes.most_nodes =
      colon == std::string::npos ? nodes.least_nodes : positive_number("--nnodes", text.substr(colon + 1));
  require(nodes.least_nodes <= nodes.most_nodes, "--nnodes = ", text,
          ": the minimum is larger than the maximum");
}

void set_rendezvous(NodeOptions& nodes, const std::string& settings) {
  std::istringstream stream(settings);
  for (std::string setting; std::getline(stream, setting, ',');) {
    const size_t equals = std::min(setting.find('='), setting.size());
    const std::string name = setting.substr(0, equals);
    const std::string value = equals < setting.size() ? setting.substr(equals + 1) : "";
    if (name == "timeout" || name == "join_timeout")
      nodes.timeout_seconds = positive_number("--rdzv-conf: " + name, value);
    else if (name == "last_call_timeout")
      nodes.last_call_seconds = positive_number("--rdzv-conf: " + name, value);
    else
      log_info(concat("lockrun: --rdzv-conf: ", name, " has no effect here"));
  }
}

/// Sets run_id and first_generation. A requeued Slurm job is the same run, with higher numbers.
void identify_run(LaunchOptions& options) {
  constexpr int64_t most_starts = 1000000;
  const std::string job = environment("SLURM_JOB_ID");
  // The mark distinguishes the runs of one job. It is the same after a requeue.
  const size_t command_mark = std::hash<std::string>()(joined(options.command, "\n"));
  options.run_id = environment("LOCKSTEP_RUN_ID");
  if (options.run_id.empty())
    options.run_id =
        job.empty() ? Secret::random().bytes().substr(0, 16) : concat("slurm-", job, "-", command_mark);
  options.first_generation = number_from_environment("SLURM_RESTART_COUNT") * most_starts;
}

void complete(LaunchOptions& options, const Texts& texts) {
  NodeOptions& nodes = options.nodes;
  if (!options.hostfile.empty()) nodes.most_nodes = std::numeric_limits<int>::max();
  if (!texts.nnodes.empty()) set_nodes(nodes, texts.nnodes);
  set_rendezvous(nodes, texts.rendezvous_settings);
  options.ranks_given = !texts.nproc.empty();
  options.nodes_given = !texts.nnodes.empty() || texts.standalone;
  options.ranks_per_node = options.ranks_given ? ranks_of(texts.nproc) : 1;
  if (nodes.endpoint.empty() && !texts.master_address.empty() && nodes.most_nodes > 1)
    nodes.endpoint = concat(texts.master_address, ":", options.master_port);
  if (texts.standalone) {
    require(nodes.least_nodes == 1, "--standalone means one node, but --nnodes asks for more");
    nodes.endpoint.clear();
    nodes.most_nodes = 1;
  }
  require(texts.backend.empty() || texts.backend == "static" || texts.backend == "c10d",
          "--rdzv-backend accepts static and c10d, which mean the same here");
  // Keepers may have another working folder.
  if (!options.logs.folder.empty()) options.logs.folder = std::filesystem::absolute(options.logs.folder);
  identify_run(options);
  nodes.slots = options.ranks_per_node;
  nodes.program = std::filesystem::read_symlink("/proc/self/exe").string();
}

/// Returns the endpoint's addresses that mean the same host on every node.
std::vector<std::string> shared_hosts(const NodeOptions& options) {
  require(
      !options.endpoint.empty(),
      "several nodes need --rdzv-endpoint host:port, the same on every node: an address of node 0 and a port "
      "that is free there");
  std::vector<std::string> hosts;
  std::string number;
  for (const SocketAddress& address : resolve(Endpoint::parse(options.endpoint, default_rendezvous_port))) {
    number = address.endpoint().host;
    if (is_shared(address) || options.most_nodes == 1) hosts.push_back(number);
  }
  require(
      !hosts.empty(), "--rdzv-endpoint ", options.endpoint, " is ", number,
      ", which other nodes cannot reach: give an address of node 0 on the network that the nodes share (this "
      "host has ",
      describe_shared_addresses(), ")");
  return hosts;
}

}  // namespace

std::optional<LaunchOptions> parse_launch_options(const std::vector<std::string>& arguments) {
  LaunchOptions options;
  Texts texts;
  CLI::App app(usage, "lockrun");
  add_options(app, options, texts);
  name_variables(app);
  std::vector<std::string> own = take_options(app, arguments, options.command);
  std::reverse(own.begin(), own.end());
  try {
    app.parse(own);
  } catch (const CLI::CallForHelp&) {
    std::cout << wrapped_lines(app.help(), output_columns());
    return std::nullopt;
  } catch (const CLI::CallForVersion&) {
    std::cout << app.version() << "\n";
    return std::nullopt;
  } catch (const CLI::ParseError& problem) {
    throw UserError(concat("lockrun: ", problem.what(), "; see lockrun --help"));
  }
  require(!options.command.empty(),
          "lockrun has no program to start: lockrun [options] -- program [arguments]");
  complete(options, texts);
  log_ignored(texts);
  return options;
}

bool hosts_rendezvous(const NodeOptions& options) {
  require(options.least_nodes >= 1 && options.least_nodes <= options.most_nodes, "--nnodes ",
          options.least_nodes, ":", options.most_nodes, " is not a range");
  require(options.node_rank < options.most_nodes, "--node-rank ", options.node_rank, " of ",
          options.most_nodes, " nodes: nodes are numbered from 0");
  if (options.node_rank == 0) return true;
  return !own_among(shared_hosts(options)).empty() && options.node_rank < 0;
}

std::string rendezvous_address(const NodeOptions& options) {
  const std::string address = own_among(shared_hosts(options));
  require(!address.empty(), "--rdzv-endpoint ", options.endpoint, " is not an address of this host (it has ",
          describe_shared_addresses(), ")");
  return address;
}

Secret run_secret(const NodeOptions& options) {
  if (!options.secret_file.empty()) return Secret::from_file(options.secret_file);
  return Secret::from_environment(
      secret_variable,
      "several nodes need a secret that only they know: make one with  openssl rand -hex 32 > secret; "
      "chmod 600 secret  and give every node the same one with --rdzv-secret-file or in LOCKRUN_SECRET");
}

}  // namespace lockstep
