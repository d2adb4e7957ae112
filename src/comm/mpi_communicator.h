// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/communicator.h"

namespace lockstep {

/// The position of this process in an MPI job.
struct MpiRank {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  ///< among the ranks that share this host's memory
  int local_size = 1;
};

/// Initialises MPI once per process. Throws UserError in a build without MPI.
MpiRank initialize_mpi();
/// Finalizes MPI; every rank calls it. Does nothing if MPI was never initialised.
void finalize_mpi();
/// Ends all ranks of the job at once with this exit code; a supervised rank ends alone (comm/heartbeat.h).
/// Does not return.
[[noreturn]] void abort_mpi(int exit_code);

/// Returns true if the tasks of srun --mpi=pmi2 become ranks of one job. With PMI-2, Open MPI 4 prints a page
/// of text that does not name the option. Open MPI 5 starts a job of one rank for each task.
bool mpi_understands_pmi2();

/// Returns the name and version of the MPI library that this program is linked with: "Open MPI v4.1.4". Empty
/// in a build without MPI.
std::string mpi_library();

/// Makes a communicator of MPI processes. Blocking calls are polled, so that a deadline holds whatever MPI
/// does.
std::shared_ptr<Communicator> make_mpi_communicator(const MpiRank& place);

}  // namespace lockstep
