// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "core/clock.h"

namespace lockstep {

/// Where a run stands.
struct ProgressState {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;
  double tokens_per_second = 0;
  double seconds_left = -1;  ///< negative: not known yet
};

/// What the display can show.
struct Display {
  bool interactive = false;  ///< a bar that is redrawn; otherwise lines
  bool unicode = false;      ///< block characters in the bar
  int columns = 80;

  /// Of stderr: whether it is a terminal, its width, and whether the locale is UTF-8.
  static Display of_stderr();
};

/// A bar of at most `display.columns` columns; parts that do not fit are left out, the least telling first.
std::string format_bar(const ProgressState& state, const Display& display);
/// The same facts as a line of plain text.
std::string format_line(const ProgressState& state);

/// Shows rank 0's progress on a terminal as one bar, elsewhere as a line every so many steps.
class Progress {
 public:
  /// `first_step` steps are already done (a resumed run). Writes to `out` (std::cerr).
  Progress(int64_t total_steps, int64_t first_step, int64_t every_steps, std::ostream& out, Display display);
  /// Leaves the last bar standing.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// After each step: `step` steps are done.
  void update(int64_t step, double loss, double tokens_per_second);
  /// Shows other text, of one or more lines, above the bar.
  void print(const std::string& text);

 private:
  void draw();
  void erase();

  ProgressState state_;
  int64_t first_step_;
  int64_t every_steps_;
  std::ostream& out_;
  Display display_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
  bool visible_ = false;
};

}  // namespace lockstep
