// SPDX-License-Identifier: Apache-2.0
// elastic_rank <directory> <steps> [attempt:rank:step:fault ...]: a rank that counts instead of training. It
// stores its count in <directory>/snapshot every fifth step and when it is asked to stop. It resumes from
// there. The snapshot of a stop takes ELASTIC_SNAPSHOT_SECONDS. It reports that the run has ELASTIC_REPLICAS
// replicas. With ELASTIC_LOG it has a log, <directory>/rank<N>.log. The faults are kill, segv, stop (by
// SIGSTOP), hang, throw, wrong, usage, left (exit code 75) and flood. A flood prints until <directory>/enough
// exists. <directory>/printed has its size in MB.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>
#include <unistd.h>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

std::atomic<bool> is_asked_to_stop = false;

void commit_fault(const std::string& fault) {
  // By then, the other ranks must wait for this rank.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  if (fault == "kill") ::raise(SIGKILL);
  if (fault == "segv") {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer would turn the signal into an exit code
    ::raise(SIGSEGV);
  }
  if (fault == "stop") ::raise(SIGSTOP);
  if (fault == "left") ::raise(SIGTERM);
  expect(fault != "throw", "the loss exploded");
  if (fault == "wrong") heartbeat().computed_wrong = true;
  expect(fault != "wrong", "this rank computed wrong");
  require(fault != "usage", "train.steps is wrong");
  while (fault == "hang") ::pause();
}

class CountingRank {
 public:
  CountingRank(int argument_count, char** arguments)
      : folder_(arguments[1]),
        snapshot_(folder_ + "/snapshot"),
        starts_(folder_ + "/starts"),
        steps_(std::atoi(arguments[2])),
        faults_(arguments + 3, arguments + argument_count),
        generation_(std::getenv("TORCHELASTIC_RESTART_COUNT")) {
    if (const char* records = std::getenv("LOCKSTEP_RECORDS")) ranks_.record_flights_in(records);
    if (const char* seconds = std::getenv("ELASTIC_SNAPSHOT_SECONDS")) snapshot_seconds_ = std::atof(seconds);
    if (const char* replicas = std::getenv("ELASTIC_REPLICAS")) heartbeat().replicas = std::atoi(replicas);
    if (std::getenv("ELASTIC_LOG") != nullptr) {
      const std::string log = concat(folder_, "/rank", world_.rank(), ".log");
      std::ofstream(log, std::ios::app) << "started\n";
      report_log_file(log);
    }
    const char* timeout = std::getenv("ELASTIC_TIMEOUT");
    ranks_.set_timeout(timeout ? std::atof(timeout) : 60.0);
    if (world_.is_first()) std::ifstream(snapshot_) >> step_;
    step_ = std::stoi(ranks_.broadcast_text(concat(step_), 0));
    if (world_.is_first())
      std::ofstream(starts_, std::ios::app) << generation_ << " " << world_.size() << " " << step_ << "\n";
  }

  int run() {
    while (step_ < steps_) {
      report_progress("counting");
      heartbeat().deadline_seconds = ranks_.timeout();
      for (const std::string& fault : faults_) {
        const std::string now = concat(generation_, ":", world_.rank(), ":", step_, ":");
        if (fault == now + "flood") flood();
        if (fault.starts_with(now)) commit_fault(fault.substr(now.size()));
      }
      const std::vector<std::string> asked = ranks_.all_gather_text(is_asked_to_stop ? "1" : "");
      heartbeat().step = ++step_;
      if (std::count(asked.begin(), asked.end(), "1") > 0) return leave(stop());
      if (step_ % 5 == 0) write_snapshot();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return leave(0);
  }

 private:
  void flood() const {
    std::string lines;
    while (lines.size() < 1000000) lines += std::string(99, '.') + "\n";
    for (int printed = 1; !std::filesystem::exists(folder_ + "/enough"); ++printed) {
      std::cout << lines << std::flush;
      report_progress("printing");
      std::ofstream(folder_ + "/printed") << printed;
    }
  }

  /// Removes the deadline, because no deadline holds while a rank ends. Training does the same.
  static int leave(int code) {
    heartbeat().deadline_seconds = 0.0;
    return code;
  }

  int stop() {
    heartbeat().deadline_seconds = 0.0;
    if (world_.is_first()) {
      report_progress("snapshot");
      std::this_thread::sleep_for(std::chrono::duration<double>(snapshot_seconds_));
    }
    write_snapshot();
    return exit_stopped;
  }

  void write_snapshot() {
    if (world_.is_first()) {  // not synced: a slow disk must not look like a hanging rank
      const std::string beside = snapshot_ + ".new";
      std::ofstream(beside) << step_;
      std::filesystem::rename(beside, snapshot_);
    }
    heartbeat().snapshot_seconds = snapshot_seconds_;
    heartbeat().snapshot_step = step_;
  }

  World world_ = World::from_environment();
  Communicator& ranks_ = world_.communicator();
  std::string folder_;
  std::string snapshot_;
  std::string starts_;
  double snapshot_seconds_ = 0.0;
  int step_ = 0;
  int steps_;
  std::vector<std::string> faults_;
  std::string generation_;
};

}  // namespace
}  // namespace lockstep

int main(int argument_count, char** arguments) {
  std::signal(SIGUSR1, [](int) { lockstep::is_asked_to_stop = true; });
  std::signal(SIGTERM, [](int) { lockstep::is_asked_to_stop = true; });
  return lockstep::run_program([&] { return lockstep::CountingRank(argument_count, arguments).run(); });
}
