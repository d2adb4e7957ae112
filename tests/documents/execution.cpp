// SPDX-License-Identifier: Apache-2.0
#include "documents/execution.h"

#include <cstdlib>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "support/temporary_directory.h"

namespace lockstep::documents {
namespace {

namespace fs = std::filesystem;

/// Shell text at the start of every session. It removes the caller's variables that affect runs. It lets Open
/// MPI start more ranks than cores, also as root, on this machine only. Open MPI's files are in the session's
/// folder, so that files of killed ranks are deleted with it and another session cannot find them. pkill
/// finds only processes of the session.
constexpr const char* preamble = R"(
unset "${!LOCKSTEP_@}" "${!LOCKRUN_@}" "${!PET_@}" "${!SLURM_@}" "${!AWS_@}" OMP_NUM_THREADS XDG_CACHE_HOME CDPATH
export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma
export OMPI_MCA_btl_vader_backing_directory=$_session OMPI_MCA_btl_base_warn_component_unused=0
export OMPI_MCA_orte_tmpdir_base=$_session PRTE_MCA_prte_tmpdir_base=$_session
export LC_ALL=C.UTF-8 TERM=dumb HOME=$PWD
ps -o sid= -p $$ >"$_session/sid"
pkill() { command pkill -s 0 "$@"; }
source scripts/env.sh
_last=0
)";

std::string quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

void link_sources(const Session& session, const fs::path& work) {
  static const std::set<std::string> left_out = {"build", "runs"};
  for (const auto& entry : fs::directory_iterator(session.sources)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(".") && !left_out.contains(name)) fs::create_symlink(entry.path(), work / name);
  }
  fs::create_directory(work / "build");
  fs::create_directory_symlink(session.build, work / "build" / "cpu");
}

/// Appends the commands of an executed block and applies its replacements if it is shortened. `output` is the
/// output block of the last command, or null.
void append_commands(const Block& block, const Block* output, bool is_full, std::vector<Executed>& all) {
  const bool is_shorter = block.tag == Tag::shorter && !is_full;
  const Replacements replacements =
      block.tag == Tag::shorter ? parse_replacements(block.argument) : Replacements();
  std::vector<bool> used(replacements.size());
  for (Command& command : commands_of(block, output)) {
    const std::string shorter = replaced(command.text, replacements, used);
    if (is_shorter) command.text = shorter;
    all.push_back({.command = command, .exactness = is_shorter ? Exactness::numbers : Exactness::digits});
  }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i]) throw std::runtime_error("no command has '" + replacements[i].first + "' to replace");
}

/// Returns the commands of a document's executed blocks.
std::vector<Executed> prepare(const Document& document, bool is_full) {
  std::vector<Executed> all;
  for (size_t at = 0; at < document.blocks.size(); ++at) {
    const Block& block = document.blocks[at];
    if (!block.is_executed()) continue;
    const bool has_output = at + 1 < document.blocks.size() && document.blocks[at + 1].tag == Tag::output;
    try {
      append_commands(block, has_output ? &document.blocks[at + 1] : nullptr, is_full, all);
    } catch (const std::runtime_error& problem) {
      throw std::runtime_error(concat(document.path, ":", block.line + 1, ": ", problem.what()));
    }
  }
  return all;
}

/// Returns the shell text of one command. An sh block records each command in it that fails. For a console
/// command only the exit code is checked.
std::string shell_text(const Command& command, const std::string& name) {
  if (command.shows_output) return command.text + "\n";
  return concat("trap 'echo \"$BASH_COMMAND ended with $?\" >>\"$_session/", name, ".failed\"' ERR\n",
                command.text, "trap - ERR\n");
}

/// Kills the processes that the session's commands have left running.
void end_session(const fs::path& folder) {
  const std::string sid = trimmed(read_text((folder / "sid").string()));
  if (!sid.empty()) static_cast<void>(std::system(concat("pkill -KILL -s ", sid, " 2>/dev/null").c_str()));
}

void read_results(const fs::path& folder, std::vector<Executed>& all) {
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string file = (folder / std::to_string(i)).string();
    const std::string ended = read_text(file + ".ended");
    all[i].output = lines_of(read_text(file + ".out"));
    while (!all[i].output.empty() && all[i].output.back().empty()) all[i].output.pop_back();
    if (ended.empty()) continue;
    all[i].is_run = true;
    all[i].exit_code = std::stoi(ended);
    all[i].seconds = std::stod(ended.substr(ended.find(' '))) * 1e-6;
    const std::vector<std::string> failures = lines_of(read_text(file + ".failed"));
    if (!failures.empty()) all[i].failure = failures.front();
  }
}

/// Returns the title and the lines. Shows only the first and the last 30 lines if there are more than 60.
std::string listing(const std::string& title, const std::vector<std::string>& lines) {
  constexpr size_t most = 30;
  std::string text = "\n  " + title + "\n";
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool is_shown = i < most || i + most >= lines.size();
    if (is_shown) text += "    " + lines[i] + "\n";
    if (!is_shown && i == most) text += concat("    (", lines.size() - 2 * most, " more)\n");
  }
  return text;
}

}  // namespace

std::vector<Executed> execute(const Document& document, const Session& session) {
  std::vector<Executed> all = prepare(document, session.is_full);
  if (all.empty()) return all;
  const TemporaryDirectory work;
  const TemporaryDirectory folder;
  link_sources(session, work.path());
  std::string script = concat("cd ", work.path(), "\n_session=", folder.path(), "\n", preamble);
  const char* data = std::getenv("LOCKSTEP_DATA_DIR");
  if (session.is_full && data) script += concat("export LOCKSTEP_DATA_DIR=", quoted(data), "\n");
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string name = std::to_string(i);
    write_text(folder / name, shell_text(all[i].command, name));
    const std::string file = "\"$_session/" + name;
    script += concat("_begin=${EPOCHREALTIME/./}; (exit $_last)\nsource ", file, "\" </dev/null >", file,
                     ".out\" 2>&1\n_last=$?\n", "echo \"$_last $((${EPOCHREALTIME/./} - _begin))\" >", file,
                     ".ended\"\n");
  }
  write_text(folder / "script", script);
  static_cast<void>(std::system(concat("setsid --wait timeout -k 1 -s KILL ", session.most_seconds, " bash ",
                                       folder / "script", " >", folder / "log", " 2>&1")
                                    .c_str()));
  end_session(folder.path());
  read_results(folder.path(), all);
  return all;
}

std::string problem_of(const Executed& executed) {
  const Command& command = executed.command;
  if (!executed.is_run)
    return "the command was not ended: the session timed out or exited" +
           listing("it printed:", executed.output);
  if (!executed.failure.empty()) return executed.failure + listing("it printed:", executed.output);
  if (!command.shows_output) return "";
  if (executed.exit_code != 0 && !command.is_told_failed)
    return concat("the command ended with ", executed.exit_code,
                  " (where it should, let '$ echo $?' follow)") +
           listing("it printed:", executed.output);
  if (executed.exactness == Exactness::numbers && command.output.empty()) return "";
  const Match match = compare(command.output, executed.output, executed.exactness);
  if (match.is_equal) return "";
  const std::string what = match.difference < command.output.size()
                               ? "the command does not print '" + command.output[match.difference] + "' there"
                               : "the command prints more";
  return what + listing("shown:", command.output) + listing("printed:", executed.output);
}

}  // namespace lockstep::documents
