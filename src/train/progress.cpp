// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "lockstep/core/clock.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/terminal.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr int widest_bar = 30;
constexpr int narrowest_bar = 8;
constexpr double redraw_seconds = 0.1;
/// Seconds after which a validation is shown.
constexpr double patience_seconds = 2.0;
constexpr double validation_line_seconds = 10.0;
/// Number of lines about epochs after which epochs are shown together.
constexpr int64_t most_epoch_lines = 20;

/// Formats a number with a suffix k or M: 950, 12.3k, 1.2M.
std::string short_count(double value) {
  if (!std::isfinite(value)) return "?";
  if (value < 999.5) return fixed_text(value, 0);
  if (value < 999.5e3) return fixed_text(value / 1e3, value < 99.95e3 ? 1 : 0) + "k";
  return fixed_text(value / 1e6, 1) + "M";
}

std::string duration(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::min(seconds, 1e9)));
  const int64_t hours = total / 3600;
  const int64_t minutes = total / 60 % 60;
  const std::string before = hours > 0 ? concat(hours, minutes < 10 ? ":0" : ":") : "";
  return concat(before, minutes, ":", zero_padded(total % 60, 2));
}

std::string steps_text(const ProgressState& state) {
  return concat("step ", state.step, "/", state.total_steps);
}
std::string loss_text(const ProgressState& state) { return "loss " + fixed_text(state.loss, 4); }
std::string speed_text(const ProgressState& state) {
  return concat(short_count(state.per_second), " ", state.unit, "/s");
}
std::string time_text(const ProgressState& state) {
  return "ETA " + (state.seconds_left < 0 ? "?" : duration(state.seconds_left));
}

std::string bar(double share, int cells, bool unicode) {
  static constexpr const char* eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  std::string text;
  const int filled = static_cast<int>(share * cells * 8);
  for (int cell = 0; cell < cells; ++cell) {
    const int level = std::clamp(filled - 8 * cell, 0, 8);
    text += unicode ? eighths[level] : level == 8 ? "#" : "-";
  }
  return unicode ? "▕" + text + "▏" : "[" + text + "]";
}

/// Returns `text` with a bar in front that fits into the display. Omits a bar below narrowest_bar cells.
std::string bar_beside(const std::string& text, double done, double all, const Display& display) {
  // The last column stays free, because writing to it makes some terminals begin a new line.
  const int room = display.columns - 1;
  const int cells = std::min(room - static_cast<int>(text.size()) - 4, widest_bar);
  if (cells < narrowest_bar) return text.substr(0, static_cast<size_t>(std::max(room, 0)));
  return bar(std::clamp(all > 0 ? done / all : 0, 0.0, 1.0), cells, display.unicode) + "  " + text;
}

/// Returns whether the locale is UTF-8, by the first of LC_ALL, LC_CTYPE and LANG that is set, as in POSIX.
bool locale_is_utf8() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string name = lower_case(environment(variable));
    if (name.empty()) continue;
    return name.find("utf-8") != std::string::npos || name.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

Display Display::of_stderr() {
  const Terminal terminal = find_terminal();
  return {.interactive = terminal.shows_errors,
          .unicode = locale_is_utf8(),
          .columns = terminal.columns,
          .shows_output = terminal.shows_output};
}

std::string format_bar(const ProgressState& state, const Display& display) {
  // Parts are in order of importance: the last ones are dropped if there is little room.
  std::string text;
  for (const std::string& part : {steps_text(state), loss_text(state), time_text(state), speed_text(state)}) {
    const std::string longer = text.empty() ? part : text + "  " + part;
    if (static_cast<int>(longer.size()) > display.columns - 1) break;
    text = longer;
  }
  return bar_beside(text, static_cast<double>(state.step), static_cast<double>(state.total_steps), display);
}

std::string format_line(const ProgressState& state) {
  return steps_text(state) + "  " + loss_text(state) + "  " + speed_text(state) + "  " + time_text(state);
}

std::string about(double seconds) {
  const auto rounded = [](double value) { return std::max<int64_t>(std::llround(value), 1); };
  if (seconds < 90) return "about " + counted(10 * rounded(seconds / 10), "second");
  if (seconds < 90 * 60) return "about " + counted(rounded(seconds / 60), "minute");
  if (seconds < 36 * 3600) return "about " + counted(rounded(seconds / 3600), "hour");
  return "about " + counted(rounded(std::min(seconds, 1e15) / 86400), "day");
}

bool ReadingPace::is_due(double elapsed) {
  if (elapsed - last_ < (elapsed < 10 ? 0.5 : 10)) return false;
  last_ = elapsed;
  return true;
}

Progress::Progress(Options options, Display display, std::ostream& errors, std::ostream& output)
    : options_(std::move(options)), display_(display), errors_(errors), output_(output) {
  if (!options_.clock)
    options_.clock = [] { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); };
  start_ = options_.clock();
  shown_step_ = options_.first_step - options_.every_steps;
  state_.step = options_.first_step;
  state_.total_steps = options_.total_steps;
  state_.unit = options_.unit;
}

Progress::~Progress() {
  log_epochs();
  if (is_visible_) errors_ << std::endl;
}

void Progress::update(int64_t step, double loss, double per_second) {
  state_.step = step;
  state_.loss = loss;
  state_.per_second = per_second;
  const auto done = static_cast<double>(step - options_.first_step);
  const double now = elapsed();
  state_.seconds_left = done > 0 ? now / done * static_cast<double>(state_.total_steps - step) : -1;

  const bool is_last = step == state_.total_steps;
  if (is_last) log_epochs();
  if (display_.interactive) {
    if (is_last || drawn_ < 0 || now - drawn_ >= redraw_seconds) draw(format_bar(state_, display_));
    return;
  }
  const bool is_far = step - shown_step_ >= options_.every_steps;
  if (is_last || (is_far && lines_.is_due(now))) {
    shown_step_ = step;
    errors_ << format_line(state_) << std::endl;
  }
  // The bar always shows the time left. A log shows it once, after two seconds and three steps.
  if (has_told_duration_ || now < 2 || done < 3) return;
  has_told_duration_ = true;
  if (state_.seconds_left >= 20) errors_ << about(state_.seconds_left) << " left" << std::endl;
}

void Progress::validate(int64_t done, int64_t batches) {
  const double now = elapsed();
  if (done == 0) {
    validation_start_ = now;
    validation_told_ = now - validation_line_seconds;
  }
  const double taken = now - validation_start_;
  if (done == 0 || taken < patience_seconds) return;
  const double left = taken / static_cast<double>(done) * static_cast<double>(batches - done);
  const std::string text = concat("validating ", done, "/", batches, " batches  ETA ", duration(left));
  if (!display_.interactive) {
    if (now - validation_told_ < validation_line_seconds) return;
    validation_told_ = now;
    errors_ << text << std::endl;
  } else if (now - drawn_ >= redraw_seconds) {
    draw(bar_beside(text, static_cast<double>(done), static_cast<double>(batches), display_));
  }
}

void Progress::begin_epoch(int64_t epoch, const EpochText& text) {
  if (!first_held_epoch_) first_held_epoch_ = epoch;
  last_epoch_ = epoch;
  epoch_text_ = text;
  if (epoch_lines_ < most_epoch_lines || epochs_.is_due(elapsed())) log_epochs();
}

void Progress::log_epochs() {
  if (!first_held_epoch_) return;
  const std::string text = epoch_text_(*first_held_epoch_, last_epoch_);
  first_held_epoch_.reset();
  epoch_lines_ += std::count(text.begin(), text.end(), '\n');
  // On a terminal all text goes to one stream, because two streams may arrive out of order.
  if (display_.interactive && display_.shows_output) {
    print(text);
  } else {
    output_ << text << std::flush;
  }
}

void Progress::print(const std::string& text) {
  const bool was_visible = is_visible_;
  erase();
  errors_ << text << (text.ends_with('\n') ? "" : "\n") << std::flush;
  if (was_visible) draw(format_bar(state_, display_));
}

void Progress::draw(const std::string& bar) {
  errors_ << "\r" << bar << "\x1b[K" << std::flush;
  is_visible_ = true;
  drawn_ = elapsed();
}

void Progress::erase() {
  if (!is_visible_) return;
  errors_ << "\r\x1b[K" << std::flush;
  is_visible_ = false;
}

}  // namespace lockstep
