// SPDX-License-Identifier: Apache-2.0
// lockrun_host <endpoint> <node>: lockrun starts it on each node of an attempt. It starts the keepers of the
// ranks on its node, and MPI_Init of the ranks connects to it.
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/pmix/host.h"
#include "lockstep/pmix/port_guard.h"
#include "lockstep/program/program.h"

using namespace lockstep;

// These definitions take precedence over those of the C library when the PMIx library calls them.
extern "C" int accept(int listener, sockaddr* address, socklen_t* size) {
  return accept_from_own_user(listener, address, size, SOCK_CLOEXEC);
}
extern "C" int accept4(int listener, sockaddr* address, socklen_t* size, int flags) {
  return accept_from_own_user(listener, address, size, flags);
}

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
