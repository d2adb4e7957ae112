// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/types.h>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "tests/support/eventually.h"
#include "tests/support/program.h"

namespace lockstep {

/// Returns the launchers that lockrun can use here on one host.
inline std::vector<std::string> launchers_here() {
  std::vector<std::string> all;
  if (std::filesystem::exists(program("lockrun_host"))) all.emplace_back("pmix");
  if (has_mpirun()) all.emplace_back("mpirun");
  return all;
}

/// A lockrun whose ranks count in a directory of their own. All processes that it started end with it.
class LockrunJob {
 public:
  /// Starts lockrun. `options` are lockrun's, and `faults` are elastic_rank's.
  LockrunJob(const std::string& options, int steps, const std::string& faults = "")
      : LockrunJob(concat(options, " -- ", program("elastic_rank")), concat(steps, " ", faults), true) {}

  /// Starts lockrun with any program.
  static LockrunJob of_command(const std::string& options, const std::string& command) {
    return {concat(options, " -- ", command), "", false};
  }

  ~LockrunJob() {
    lockrun_->signal(SIGKILL);
    for (const pid_t process : processes()) ::kill(process, SIGKILL);
  }
  LockrunJob(LockrunJob&&) = default;

  pid_t id() const { return lockrun_->id(); }
  void signal(int number) { lockrun_->signal(number); }
  /// Sends a signal to the process group, as a terminal does.
  void signal_group(int number) { lockrun_->signal_group(number); }
  bool says(const std::string& text) const {
    return eventually([&] { return errors().find(text) != std::string::npos; });
  }
  /// Waits for lockrun's end. Returns its exit code, or 124 after three minutes.
  int exit_code() {
    const std::optional<Ending> ending = lockrun_->wait(180.0);
    return ending ? ending->code() : 124;
  }

  std::string errors() const { return read_text(*directory_ / "errors"); }
  std::string output() const { return read_text(*directory_ / "output"); }
  /// Returns a line for each start: its number, its ranks, its first step.
  std::string starts() const { return read_text(*directory_ / "starts"); }
  std::string file(const std::string& name) const { return *directory_ / name; }
  int snapshot_step() const { return std::atoi(read_text(*directory_ / "snapshot").c_str()); }
  bool reaches_step(int step) const {
    return eventually([&] { return snapshot_step() >= step; });
  }

  /// Returns the processes that have this job's mark in their environment and, if given, this text in their
  /// command.
  std::vector<pid_t> processes(const std::string& command = "") const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const pid_t process = std::atoi(entry.path().filename().c_str());
      if (process <= 0 || read_text(entry.path() / "environ").find(mark_) == std::string::npos) continue;
      if (process_state(process) == 'Z') continue;
      if (read_text(entry.path() / "cmdline").find(command) != std::string::npos) found.push_back(process);
    }
    return found;
  }
  /// Returns the processes that lockrun has started: mpirun, or prterun, which mpirun executes in Open MPI 5.
  std::vector<pid_t> launchers() const {
    std::vector<pid_t> found = processes();
    std::erase_if(found, [&](pid_t process) { return parent_of(process) != id(); });
    return found;
  }
  /// Returns the value of a variable in the environment of a rank.
  std::string variable_of_rank(const std::string& name) const {
    for (const pid_t process : processes("elastic_rank")) {
      std::istringstream words(read_text(concat("/proc/", process, "/environ")));
      for (std::string word; std::getline(words, word, '\0');)
        if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
    }
    return "";
  }
  bool leaves_nothing() const {
    return eventually([&] { return processes().empty(); }) && std::filesystem::is_empty(file("tmp"));
  }

 private:
  LockrunJob(const std::string& before, const std::string& after, bool counts)
      : directory_(std::make_unique<TemporaryDirectory>()),
        mark_(concat("LOCKRUN_TEST_MARK=", directory_->path())) {
    std::filesystem::create_directory(file("tmp"));
    const std::string line =
        concat("exec ", program("lockrun"), " ", before, " ", counts ? directory_->path() : "", " ", after,
               " >", file("output"), " 2>", file("errors"));
    lockrun_ =
        std::make_unique<Process>(ProcessOptions{.command = {"bash", "-c", line},
                                                 .environment = {{"LOCKRUN_TEST_MARK", directory_->path()},
                                                                 {"TMPDIR", file("tmp")},
                                                                 {"ASAN_OPTIONS", asan_options_of_ranks}},
                                                 .without_input = true});
  }

  std::unique_ptr<TemporaryDirectory> directory_;
  std::string mark_;
  std::unique_ptr<Process> lockrun_;
};

/// Expects these parts in this order, which is that of a run's messages.
inline void expect_in_order(const std::string& text, std::initializer_list<const char*> parts) {
  size_t at = 0;
  for (const char* part : parts) {
    at = text.find(part, at);
    ASSERT_NE(at, std::string::npos) << "'" << part << "' is missing or too early in:\n" << text;
  }
}

/// Tests that start lockrun on this host.
class Lockrun : public testing::Test {
 protected:
  void SetUp() override {
    if (launchers_here().empty()) GTEST_SKIP() << "there is neither mpirun nor lockrun_host";
  }
};

}  // namespace lockstep
