// SPDX-License-Identifier: Apache-2.0
#pragma once

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
  int major() const;
  /// Returns family and number: "Open MPI 5.0.7".
  std::string text() const;
  bool operator==(const MpiVersion&) const = default;
};

/// Returns options of mpirun that lift its limit of one rank per core and leave ranks unbound. Open MPI 4 and
/// 5 both accept them.
std::vector<std::string> more_ranks_than_cores();

/// Variables for mpirun of Open MPI 4 and 5 that the user has not set. Each version ignores the variables of
/// the other, so the mpirun that is started need not be known.
class MpirunEnvironment {
 public:
  /// Allows mpirun to be started by root, if this process is root's.
  MpirunEnvironment& allow_root();
  /// Leaves failures of ranks to the caller: mpirun prints nothing about them, and in Open MPI 5 does not end
  /// the other ranks.
  MpirunEnvironment& leave_failures();
  /// Keeps ranks from reading each other's memory through the kernel. Containers may forbid it.
  MpirunEnvironment& without_single_copy();
  /// Prepares for ranks of this host alone. The launcher writes temporary files below `folder`. Messages pass
  /// through shared memory, so Open MPI 5 prints no line per rank about interfaces that it cannot pair.
  MpirunEnvironment& on_this_host(const std::string& folder);

  const std::map<std::string, std::string>& variables() const { return variables_; }

 private:
  void set_default(const char* variable, const std::string& value);

  std::map<std::string, std::string> variables_;
};

}  // namespace lockstep
