// SPDX-License-Identifier: Apache-2.0
// lockrun_host <endpoint> <node>: lockrun starts it on each node of an attempt. It starts the keepers of the
// ranks on its node, and MPI_Init of the ranks connects to it.
#include "core/error.h"
#include "core/log.h"
#include "pmix/host.h"
#include "program/program.h"

using namespace lockstep;

int main(int argument_count, char** arguments) {
  begin_program();
  try {
    require(argument_count == 3, "lockrun starts lockrun_host; start lockrun instead");
    return run_host(arguments[1], std::atoi(arguments[2]));
  } catch (const UserError& failure) {
    log_error(failure.what());
    return exit_usage;
  } catch (const std::exception& failure) {
    log_error(concat("lockrun_host: ", failure.what()));
    return 1;
  }
}
