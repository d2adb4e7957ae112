// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/rows.h"
#include "config/settings.h"

namespace lockstep {

/// The keys of a Job, a struct that consists of structs of options, and their fields.
template <class Job>
class JobKeys : public KeyTable {
 public:
  /// Adds the rows of a room. `part` is the job's struct of these options.
  template <class Options>
  void add(const Rows<Options>& rows, Options Job::*part) {
    const auto part_of = [part](auto& job) -> auto& { return job.*part; };
    const Rows<Job> of_job = rows_within<Job>(rows, part_of);
    for (const auto& row : of_job.rows()) {
      keys_.push_back(row.key);
      fields_.push_back({row.read, row.write});
    }
  }

  Job job_of(const Settings& settings) const {
    Job job;
    for (size_t k = 0; k < keys_.size(); ++k)
      fields_[k].read(job, settings[keys_[k].name], keys_[k].name + ": ");
    return job;
  }

  /// Returns the values of a job. Every key counts as set. Throws UserError if a key does not accept its
  /// value.
  Settings settings_of(const Job& job) const {
    Layer values;
    for (size_t k = 0; k < keys_.size(); ++k) values.push_back({keys_[k].name, fields_[k].write(job), ""});
    Settings settings(*this);
    settings.add(values);
    return settings;
  }

 private:
  struct Field {
    std::function<void(Job&, const std::string& text, const std::string& what)> read;
    std::function<std::string(const Job&)> write;
  };
  std::vector<Field> fields_;  ///< in the order of the keys
};

}  // namespace lockstep
