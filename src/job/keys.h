// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/config/arguments.h"
#include "lockstep/config/rows.h"
#include "lockstep/job/job.h"

namespace lockstep {

/// The keys of a Job, and their fields.
class JobKeys : public KeyTable {
 public:
  /// Adds the rows of a room. `part` is the job's struct of these options.
  template <class Options>
  void add(const KeyRows<Options>& rows, Options Job::*part) {
    const auto part_of = [part](auto& job) -> auto& { return job.*part; };
    const KeyRows<Job> of_job = rows_within<Job>(rows, part_of);
    for (const auto& row : of_job.rows()) {
      keys_.push_back(row.key);
      fields_.push_back(row.field);
    }
  }

  Job job_of(const Settings& settings) const;
  /// Returns the values of a job. Every key counts as set. Throws UserError if a key does not accept its
  /// value.
  Settings settings_of(const Job& job) const;

 private:
  std::vector<KeyRows<Job>::Field> fields_;  ///< in the order of the keys
};

/// Returns the keys of all rooms, in the order of --help. The first call sets the wording of this process:
/// messages name these keys instead of options.
const JobKeys& job_keys();

/// Splits the arguments of main(). Throws UserError if an option lacks its value.
Arguments split_arguments(int argc, const char* const* argv);

/// Returns the text of --help for a program with these defaults.
std::string job_help(const std::string& program, const SettingLayer& defaults = {});

/// Returns the text of --help for a program with a model of its own, after its name and its arguments. It
/// leaves out the sections in `without`.
std::string own_model_help(const SettingLayer& defaults, const std::vector<std::string>& without);

/// Returns the INI text of a job. Reading it gives the same job, also with another log.dir.
std::string to_ini(const Job& job);

}  // namespace lockstep
