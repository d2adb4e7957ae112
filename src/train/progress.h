// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

namespace lockstep {

/// The state of a run that a progress display shows.
struct ProgressState {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;
  double per_second = 0;        ///< in `unit` per second
  double seconds_left = -1;     ///< negative: not known yet
  std::string unit = "tokens";  ///< the unit of per_second: tokens or samples
};

/// Properties of the display.
struct Display {
  bool interactive = false;  ///< shows a bar that is redrawn; otherwise lines
  bool unicode = false;      ///< draws the bar with block characters
  int columns = 80;
  bool shows_output = false;  ///< stdout appears on the same terminal

  /// Describes the display of stderr, as found by find_terminal(). It is Unicode if the locale is UTF-8.
  static Display of_stderr();
};

/// Formats a bar of at most `display.columns` columns. The least important parts are left out first.
std::string format_bar(const ProgressState& state, const Display& display);
/// Formats a state as a line of plain text.
std::string format_line(const ProgressState& state);
/// Formats a duration in words: "about 3 minutes".
std::string about(double seconds);

/// A rate limit for lines: two per second in the first ten seconds, then one every ten seconds.
class ReadingPace {
 public:
  /// Returns whether a line is due `elapsed` seconds after the start. If it is, counts the line as written.
  bool is_due(double elapsed);

 private:
  double last_ = -1e9;
};

/// Shows rank 0's progress: a bar on a terminal, and lines at a ReadingPace elsewhere.
class Progress {
 public:
  struct Options {
    int64_t total_steps = 0;
    int64_t first_step = 0;   ///< steps that were done before (a resumed run)
    int64_t every_steps = 1;  ///< least number of steps between lines
    std::string unit = "tokens";
    std::function<double()> clock = {};  ///< returns seconds; empty: the steady clock
  };
  /// Returns the text for the start of epochs `first` to `last`: whole lines.
  using EpochText = std::function<std::string(int64_t first, int64_t last)>;

  /// Writes the bar and lines to `errors`. Texts about epochs go to `output`, unless both are one terminal.
  Progress(Options options, Display display, std::ostream& errors, std::ostream& output);
  /// Writes texts that were held back. The last bar remains visible.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows a step. Call it after each step; `step` steps are done.
  void update(int64_t step, double loss, double per_second);
  /// Shows the progress of a validation: `done` of `batches` batches are done. Call it before each batch,
  /// first with 0. Nothing is shown in the first two seconds.
  void validate(int64_t done, int64_t batches);
  /// Marks the start of an epoch. Shows the first ones singly and later ones together, at a ReadingPace.
  void begin_epoch(int64_t epoch, const EpochText& text);
  /// Shows other text above the bar: one or more lines.
  void print(const std::string& text);

 private:
  double elapsed() const { return options_.clock() - start_; }
  void log_epochs();
  void draw(const std::string& bar);
  void erase();

  Options options_;
  Display display_;
  std::ostream& errors_;
  std::ostream& output_;
  ProgressState state_;
  double start_;
  ReadingPace lines_;
  ReadingPace epochs_;
  int64_t shown_step_;
  bool has_told_duration_ = false;
  double validation_start_ = 0;
  double validation_told_ = 0;
  std::optional<int64_t> first_held_epoch_;
  int64_t last_epoch_ = 0;
  int64_t epoch_lines_ = 0;
  EpochText epoch_text_;
  double drawn_ = -1;
  bool is_visible_ = false;  ///< whether the bar is on the screen
};

}  // namespace lockstep
