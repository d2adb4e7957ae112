// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// A table of results: printed row by row under a line that says where it was measured, and appended to
/// bench/results/<name>.csv on demand, of a GPU (the current stream's) to <GPU>_<name>.csv. Nothing ever
/// rewrites that file.
class Report {
 public:
  struct Column {
    std::string name;
    int width = 10;  ///< on the screen, in characters
  };
  struct Scale {
    int ranks = 1;
    int threads = 1;  ///< per rank
  };

  /// A report that is not `shown` does nothing: that of all ranks but the first.
  Report(const std::string& name, std::vector<Column> columns, Scale scale, bool shown = true);

  /// Throws Error unless there is one cell a column.
  void add(std::vector<std::string> cells);
  /// Writes all rows, each with where it was measured: date, commit, device and, of a CPU, cores, compiler,
  /// load, ranks and threads, of a GPU its driver. Throws UserError if the file cannot be written or has
  /// other columns.
  void append() const;

 private:
  std::string file_;  ///< in bench/results, without .csv
  std::vector<Column> columns_;
  bool shown_;
  std::vector<std::pair<std::string, std::string>> place_;  ///< what and where: the first columns of the file
  std::vector<std::vector<std::string>> rows_;
};

/// The table bench/results/<GPU>.csv, which all benchmarks of the current stream's GPU share.
class GpuReport {
 public:
  explicit GpuReport(std::string benchmark);

  /// Cells: case, shape, dtype, us, spread, rate, unit, ceiling, percent, peer, peer_rate.
  void add(std::vector<std::string> cells);
  /// As Report::append().
  void append() const { report_.append(); }

 private:
  std::string benchmark_;
  Report report_;
};

}  // namespace lockstep
