// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace lockstep {

/// Where this process stands in an MPI job.
struct MpiRank {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  ///< among the ranks that share this host's memory
  int local_size = 1;
};

/// Initialises MPI once per process. Throws UserError in a build without MPI.
MpiRank initialize_mpi();
/// Ends MPI in order: every rank calls it. Nothing happens if MPI was never initialised.
void finalize_mpi();
/// Ends all ranks of the job at once with this exit code, a watched one alone (core/heartbeat.h); does not
/// return.
[[noreturn]] void abort_mpi(int exit_code);

/// True if the tasks of srun --mpi=pmi2 become ranks of one job. To PMI-2 Open MPI 4 answers with a page of
/// text that does not name the option, Open MPI 5 with as many jobs of one rank.
bool mpi_understands_pmi2();

/// What the MPI library that this program is linked with calls itself: "Open MPI v4.1.4"; empty in a build
/// without MPI.
std::string mpi_library();

/// Ranks that are MPI processes. Blocking calls are polled, so that a deadline holds whatever MPI does.
std::shared_ptr<Communicator> make_mpi_communicator(const MpiRank& place);

}  // namespace lockstep
