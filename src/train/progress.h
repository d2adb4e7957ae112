// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

namespace lockstep {

/// Where a run stands.
struct ProgressState {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;
  double per_second = 0;        ///< how many of `unit`
  double seconds_left = -1;     ///< negative: not known yet
  std::string unit = "tokens";  ///< what the model learns from: tokens or samples
};

/// What the display can show.
struct Display {
  bool interactive = false;  ///< a bar that is redrawn; otherwise lines
  bool unicode = false;      ///< block characters in the bar
  int columns = 80;
  bool shows_output = false;  ///< stdout appears there too

  /// Where stderr ends up (find_terminal), and whether the locale is UTF-8.
  static Display of_stderr();
};

/// A bar of at most `display.columns` columns; parts that do not fit are left out, the least telling first.
std::string format_bar(const ProgressState& state, const Display& display);
/// The same facts as a line of plain text.
std::string format_line(const ProgressState& state);
/// A duration as a person says it: "about 3 minutes".
std::string about(double seconds);

/// As often as a person reads: twice a second in the first ten seconds, then every ten.
class ReadingPace {
 public:
  /// Whether the next line is due after so many seconds, and if so, takes its turn.
  bool is_due(double elapsed);

 private:
  double last_ = -1e9;
};

/// Shows rank 0's progress: on a terminal as one bar, elsewhere as lines at the pace of a reader.
class Progress {
 public:
  struct Options {
    int64_t total_steps = 0;
    int64_t first_step = 0;   ///< already done (a resumed run)
    int64_t every_steps = 1;  ///< least number of steps between lines
    std::string unit = "tokens";
    std::function<double()> clock = {};  ///< seconds; empty: the steady clock
  };
  /// What is said at the start of epochs `first` to `last`: whole lines.
  using EpochText = std::function<std::string(int64_t first, int64_t last)>;

  /// The bar and lines go to `errors`, the words about epochs to `output`, unless both are one terminal.
  Progress(Options options, Display display, std::ostream& errors, std::ostream& output);
  /// Says what was held back, and leaves the last bar standing.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// After each step: `step` steps are done.
  void update(int64_t step, double loss, double per_second);
  /// Around each batch of a validation: `done` of `batches` are done, none at its start. Shown if it takes
  /// longer than a person waits without asking.
  void validate(int64_t done, int64_t batches);
  /// An epoch begins: the first are told one by one, later ones at a reader's pace, several as one.
  void begin_epoch(int64_t epoch, const EpochText& text);
  /// Shows other text, of one or more lines, above the bar.
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
  bool is_visible_ = false;  ///< the bar
};

}  // namespace lockstep
