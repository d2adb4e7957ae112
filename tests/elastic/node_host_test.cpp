// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/elastic/node.h"
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

TEST(NodeHost, HasFoldersAndItsEndIsReportedOnce) {
  EXPECT_TRUE(holds_in_a_process([] {
    NodeHost host;
    host.start({"sh", "-c", "test -d $LOCKRUN_FOLDER && test -d $LOCKRUN_SHARED_FOLDER && exit $CODE"},
               {{"CODE", "3"}});
    std::optional<Ending> ending;
    const bool has_ended = eventually([&] { return (ending = host.take_ending()).has_value(); });
    return has_ended && ending->code() == 3 && !host.take_ending();
  }));
}

TEST(NodeHost, EndsEverythingThatWasStartedHoweverItHid) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(holds_in_a_process([&] {
    NodeHost host;
    const std::string hidden = directory / "hidden";
    host.start({"sh", "-c",
                "setsid sh -c 'trap \"\" TERM; echo $$ >" + hidden + ".part; mv " + hidden + ".part " +
                    hidden + "; while :; do sleep 1; done' & exit 0"},
               {});
    if (!eventually([&] { return !read_text(hidden).empty(); })) return false;
    const pid_t pid = std::stoi(read_text(hidden));
    if (::kill(pid, 0) != 0) return false;
    host.end();
    return ::kill(pid, 0) != 0;
  }));
}

}  // namespace
}  // namespace lockstep
