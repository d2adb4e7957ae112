// SPDX-License-Identifier: Apache-2.0
#include "lockstep/elastic/launch_options.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "lockstep/core/error.h"
#include "lockstep/core/process.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

LaunchOptions parse(const Words& arguments) { return parse_launch_options(arguments).value(); }

std::string refusal(const Words& arguments) {
  try {
    parse_launch_options(arguments);
  } catch (const UserError& failure) {
    return failure.what();
  }
  return "";
}

TEST(LaunchOptions, BothSpellingsMeanTheSame) {
  for (const Words& words : {Words{"--nproc-per-node", "4", "--max-restarts", "1", "train", "x"},
                             Words{"--nproc_per_node=4", "--max_restarts=1", "--", "train", "x"},
                             Words{"--nproc=4", "--max_restarts", "1", "train", "x"}}) {
    const LaunchOptions options = parse(words);
    EXPECT_EQ(options.ranks_per_node, 4);
    EXPECT_EQ(options.max_restarts, 1);
    EXPECT_EQ(options.command, (Words{"train", "x"}));
  }
}

TEST(LaunchOptions, ARunHasANameOfItsOwnOrItsJobs) {
  ::unsetenv("LOCKSTEP_RUN_ID");
  ::unsetenv("SLURM_JOB_ID");
  EXPECT_EQ(parse({"train"}).run_id.size(), 16u);
  EXPECT_NE(parse({"train"}).run_id, parse({"train"}).run_id);
  ::setenv("SLURM_JOB_ID", "4711", 1);
  EXPECT_TRUE(parse({"train"}).run_id.starts_with("slurm-4711-"));
  EXPECT_EQ(parse({"train"}).run_id, parse({"train"}).run_id);
  EXPECT_NE(parse({"train"}).run_id, parse({"train", "log.dir=b"}).run_id) << "two runs of one job";
  ::setenv("LOCKSTEP_RUN_ID", "mine", 1);
  EXPECT_EQ(parse({"train"}).run_id, "mine");
  ::unsetenv("LOCKSTEP_RUN_ID");
  ::unsetenv("SLURM_JOB_ID");
}

TEST(LaunchOptions, WhatFollowsTheProgramIsTheProgramsOwn) {
  EXPECT_EQ(parse({"--nproc", "2", "train", "--nproc", "7", "--", "a_b"}).command,
            (Words{"train", "--nproc", "7", "--", "a_b"}));
  EXPECT_EQ(parse({"--", "--odd-name"}).command, Words{"--odd-name"});
}

TEST(LaunchOptions, NodesAreANumberOrARange) {
  EXPECT_EQ(parse({"--nnodes", "3", "train"}).nodes.least_nodes, 3);
  const NodeOptions nodes = parse({"--nnodes=1:4", "--node_rank=2", "--rdzv_endpoint", "a:1", "train"}).nodes;
  EXPECT_EQ(nodes.least_nodes, 1);
  EXPECT_EQ(nodes.most_nodes, 4);
  EXPECT_EQ(nodes.node_rank, 2);
  EXPECT_EQ(nodes.endpoint, "a:1");
  EXPECT_NE(refusal({"--nnodes", "4:1", "train"}), "");
  EXPECT_NE(refusal({"--nnodes", "few", "train"}), "");
  EXPECT_NE(refusal({"--nproc", "0", "train"}), "");
}

TEST(LaunchOptions, AWrongNumberIsRefusedInWords) {
  EXPECT_NE(refusal({"--grace", "-1", "train"}).find("expected a number from 0 up, not '-1'"),
            std::string::npos);
  EXPECT_NE(refusal({"--rdzv-timeout=0", "train"}).find("expected a number above 0, not '0'"),
            std::string::npos);
  EXPECT_NE(refusal({"--max-restarts", "few", "train"}).find("not 'few'"), std::string::npos);
  EXPECT_EQ(parse({"--grace=0.5", "--max-restarts=0", "train"}).grace_seconds, 0.5);
}

TEST(LaunchOptions, TorchrunsMasterAddressIsAnEndpoint) {
  const Words words = {"--nnodes=2", "--master-addr=host-a", "--master_port", "4000", "train"};
  EXPECT_EQ(parse(words).nodes.endpoint, "host-a:4000");
  EXPECT_EQ(parse({"--standalone", "--rdzv-endpoint=a:1", "train"}).nodes.endpoint, "");
}

TEST(LaunchOptions, RanksMayFollowTheCores) {
  EXPECT_EQ(parse({"--nproc=cpu", "train"}).ranks_per_node, available_cores());
}

TEST(LaunchOptions, TheEnvironmentGivesDefaults) {
  ::setenv("PET_MAX_RESTARTS", "7", 1);
  ::setenv("PET_NPROC_PER_NODE", "5", 1);
  EXPECT_EQ(parse({"train"}).max_restarts, 7);
  EXPECT_EQ(parse({"train"}).ranks_per_node, 5);
  EXPECT_EQ(parse({"--max-restarts=2", "train"}).max_restarts, 2);
  ::unsetenv("PET_MAX_RESTARTS");
  ::unsetenv("PET_NPROC_PER_NODE");
}

TEST(LaunchOptions, AnUnknownOptionIsRefusedWithASuggestion) {
  EXPECT_EQ(refusal({"--foo", "train"}), "lockrun does not know --foo; see lockrun --help");
  EXPECT_EQ(refusal({"-", "train"}), "lockrun does not know -; see lockrun --help");
  EXPECT_EQ(refusal({"--nprok", "2", "train"}), "lockrun does not know --nprok; did you mean --nproc?");
  EXPECT_EQ(refusal({"--max_restart=2", "train"}),
            "lockrun does not know --max-restart; did you mean --max-restarts?");
  EXPECT_NE(refusal({"--nproc", "2"}).find("no program"), std::string::npos);
}

TEST(LaunchOptions, StreamsAreChosenAsForTorchrun) {
  const RankLogs all = parse({"--log-dir", "logs", "-r", "3", "--tee=0:1,2:2", "train"}).logs;
  EXPECT_EQ(all.folder, std::filesystem::absolute("logs")) << "ranks may have another working folder";
  const auto targets = [&](int stream, int local_rank) {
    const StreamTargets found = all.targets(stream, local_rank);
    return concat(found.file ? "file " : "", found.console ? "console " : "",
                  found.is_tagged ? "tagged" : "");
  };
  EXPECT_EQ(targets(stdout_stream, 0), "file console tagged") << "--tee takes precedence";
  EXPECT_EQ(targets(stderr_stream, 0), "file ");
  EXPECT_EQ(targets(stdout_stream, 2), "file ");
  EXPECT_EQ(targets(stderr_stream, 2), "file console tagged");
  const RankLogs shown = parse({"--local_ranks_filter=1,3", "--redirects", "1:2", "train"}).logs;
  EXPECT_FALSE(shown.targets(stdout_stream, 0).console);
  EXPECT_TRUE(shown.targets(stdout_stream, 3).console);
  EXPECT_TRUE(shown.targets(stdout_stream, 1).console);
  EXPECT_FALSE(shown.targets(stderr_stream, 1).console);
  EXPECT_FALSE(shown.targets(stderr_stream, 3).file);
}

TEST(LaunchOptions, AWrongChoiceOfStreamsIsRefusedWithWhatIsAccepted) {
  for (const char* wrong : {"4", "-1", "both", "0:4", "0:1;1:1", "0:1,2", ":1", "0:", "-1:1"}) {
    const std::string message = refusal({std::string("--tee=") + wrong, "train"});
    EXPECT_NE(message.find(std::string("3 (both), or numbers of local ranks as in 0:1,1:3, not '") + wrong),
              std::string::npos)
        << message;
  }
  EXPECT_NE(refusal({"--local-ranks-filter", "0,x", "train"}).find("not '0,x'"), std::string::npos);
}

TEST(LaunchOptions, TorchrunsOthersAreAcceptedAndThoseThatMatterNamed) {
  const auto log_of = [](Words words) {
    words.insert(words.end(), {"--", "train"});
    testing::internal::CaptureStderr();
    EXPECT_EQ(parse(words).command, Words{"train"});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(log_of({"--no-python", "--start-method=spawn", "--monitor_interval", "1", "--run-path",
                    "--rdzv-backend=c10d"}),
            "");
  ::setenv("PET_NUMA_BINDING", "node", 1);
  EXPECT_EQ(
      log_of({"--signals-to-handle", "SIGTERM", "--role=a"}),
      "lockrun: without effect here: --role, --signals-to-handle, --numa-binding; see lockrun --help\n");
  ::unsetenv("PET_NUMA_BINDING");
  EXPECT_NE(refusal({"--rdzv-backend=etcd", "train"}), "");
}

}  // namespace
}  // namespace lockstep
