// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// A table of results, printed row by row under a line that names the machine. append() adds the rows to
/// bench/results/<name>.csv, or to <GPU>_<name>.csv if the current stream is on a GPU. Existing rows are
/// never rewritten.
class Report {
 public:
  struct Column {
    std::string name;
    int width = 10;  ///< printed width in characters
  };
  struct Scale {
    int ranks = 1;
    int threads = 1;  ///< per rank
  };

  /// Creates a report. If not `shown` it prints and writes nothing, as on all ranks but the first.
  Report(const std::string& name, std::vector<Column> columns, Scale scale, bool shown = true);

  /// Prints and keeps a row. Throws Error unless there is one cell per column.
  void add(std::vector<std::string> cells);
  /// Appends all rows to the file. Each row begins with date, commit and device. A CPU's cores, compiler,
  /// load, ranks and threads follow, or a GPU's driver. Throws UserError if the file cannot be written or has
  /// different columns.
  void append() const;

 private:
  std::string file_;  ///< file name in bench/results, without .csv
  std::vector<Column> columns_;
  bool shown_;
  std::vector<std::pair<std::string, std::string>>
      place_;  ///< first columns of the file: date, commit, machine
  std::vector<std::vector<std::string>> rows_;
};

/// The table bench/results/<GPU>.csv. All benchmarks of the current stream's GPU share it.
class GpuReport {
 public:
  explicit GpuReport(std::string benchmark);

  /// Adds a row. Its cells are case, shape, dtype, us, spread, rate, unit, ceiling, percent, peer, peer_rate.
  void add(std::vector<std::string> cells);
  /// Appends all rows to the file, as Report::append() does.
  void append() const { report_.append(); }

 private:
  std::string benchmark_;
  Report report_;
};

}  // namespace lockstep
