// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// Family and version of an MPI, read from what its library or its launcher prints.
struct MpiVersion {
  std::string family;  ///< "Open MPI", "Intel", "MVAPICH", "MPICH"; empty if unknown
  std::string number;  ///< "4.1.4"; empty if unknown

  static MpiVersion in(const std::string& text);
  /// Returns the version of the mpirun in PATH; unknown if it does not start or prints neither.
  static MpiVersion of_mpirun();

  /// Returns the major version: 5 for "5.0.7"; 0 if unknown.
  int major() const { return std::atoi(number.c_str()); }
  /// Returns family and number: "Open MPI 5.0.7".
  std::string text() const { return family + " " + number; }
  bool operator==(const MpiVersion&) const = default;
};

/// Returns options of mpirun that lift its limit of one rank per core and leave ranks unbound. Open MPI 4 and
/// 5 both accept them.
std::vector<std::string> more_ranks_than_cores();

/// Variables for Open MPI 4 and 5, its mpirun and its ranks, that the user has not set. Each version ignores
/// the variables of the other, so the one that is started need not be known.
class OpenMpiEnvironment {
 public:
  /// Allows mpirun to be started by root, if this process is root's.
  OpenMpiEnvironment& allow_root();
  /// Leaves failures of ranks to the caller: mpirun prints nothing about them, and in Open MPI 5 does not end
  /// the other ranks.
  OpenMpiEnvironment& leave_failures();
  /// Keeps ranks from reading each other's memory through the kernel, unless that is allowed. Containers and
  /// Yama may forbid it.
  OpenMpiEnvironment& respect_ptrace_rules();
  /// Prepares mpirun for ranks of this host alone. Its temporary files are written below `folder`. Messages
  /// pass through shared memory, so Open MPI 5 prints no line per rank about interfaces that it cannot pair.
  OpenMpiEnvironment& on_this_host(const std::string& folder);
  /// Prepares ranks that connect to a PMIx server instead of mpirun's.
  OpenMpiEnvironment& without_mpirun();
  /// Puts the segments of shared memory by which ranks of a host exchange messages into `folder`.
  OpenMpiEnvironment& with_segments_in(const std::string& folder);
  /// Limits ranks to shared memory: they open no port.
  OpenMpiEnvironment& within_one_host();
  /// Makes waiting ranks yield their core, as mpirun does when there are more ranks than cores.
  OpenMpiEnvironment& share_cores();
  /// Limits ranks to the network interface with this address of this host.
  OpenMpiEnvironment& on_interface(const std::string& interface, bool is_ipv6);

  const std::map<std::string, std::string>& variables() const { return variables_; }

 private:
  OpenMpiEnvironment& set_defaults(const std::map<std::string, std::string>& defaults);

  std::map<std::string, std::string> variables_;
};

}  // namespace lockstep
