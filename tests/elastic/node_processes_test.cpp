// SPDX-License-Identifier: Apache-2.0
#include "elastic/node_processes.h"

#include <functional>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/eventually.h"
#include "support/temporary_directory.h"

namespace lockstep {
namespace {

/// Returns the result of the body in a child process, because the body adopts orphans and ends every child.
bool holds_in_a_process(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(NodeProcesses, ReportsOutputAndEnding) {
  EXPECT_TRUE(holds_in_a_process([] {
    NodeProcesses processes;
    processes.start(5, "(echo $COLOUR; echo trouble) >&2; exit 3", {{"COLOUR", "blue"}});
    std::string output;
    int code = -1;
    const bool ended = eventually([&] {
      processes.attend([&](const NodeMessage& report) {
        if (report.kind == NodeMessage::Kind::output) output += report.text;
        if (report.kind == NodeMessage::Kind::ended) code = report.code;
      });
      return code >= 0;
    });
    return ended && code == 3 && output == "blue\ntrouble\n";
  }));
}

TEST(NodeProcesses, EndsWhateverWasStartedHoweverItHid) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(holds_in_a_process([&] {
    NodeProcesses processes;
    const std::string hidden = directory / "hidden";
    processes.start(1,
                    "setsid sh -c 'trap \"\" TERM; echo $$ >" + hidden + ".part; mv " + hidden + ".part " +
                        hidden + "; while :; do sleep 1; done' & exit 0",
                    {});
    if (!eventually([&] { return !read_text(hidden).empty(); })) return false;
    const pid_t pid = std::stoi(read_text(hidden));
    if (::kill(pid, 0) != 0) return false;
    processes.end_all();
    return ::kill(pid, 0) != 0;
  }));
}

TEST(NodeProcesses, OneIsEndedAlone) {
  EXPECT_TRUE(holds_in_a_process([] {
    NodeProcesses processes;
    processes.start(1, "exec sleep 1000", {});
    processes.start(2, "exec sleep 1000", {});
    processes.end(1);
    std::vector<int> ended;
    const auto report = [&](const NodeMessage& message) {
      if (message.kind == NodeMessage::Kind::ended) ended.push_back(message.process);
    };
    const bool one = eventually([&] {
      processes.attend(report);
      return !ended.empty();
    });
    return one && ended == std::vector<int>{1};
  }));
}

}  // namespace
}  // namespace lockstep
