// SPDX-License-Identifier: Apache-2.0
#include "train/progress.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iomanip>
#include <sstream>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>
#include <vector>

#include "core/error.h"

namespace lockstep {
namespace {

constexpr int widest_bar = 30;
constexpr int narrowest_bar = 8;
constexpr std::chrono::milliseconds redraw_interval{100};

std::string fixed(double value, int decimals) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(decimals) << value;
  return text.str();
}

/// Three or four digits: 950, 12.3k, 1.2M.
std::string short_count(double value) {
  if (!std::isfinite(value)) return "?";
  if (value < 999.5) return fixed(value, 0);
  if (value < 999.5e3) return fixed(value / 1e3, value < 99.95e3 ? 1 : 0) + "k";
  return fixed(value / 1e6, 1) + "M";
}

std::string duration(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::min(seconds, 1e9)));
  const int64_t hours = total / 3600;
  const int64_t minutes = total / 60 % 60;
  std::ostringstream text;
  text << std::setfill('0');
  if (hours > 0) text << hours << ":" << std::setw(2);
  text << minutes << ":" << std::setw(2) << total % 60;
  return text.str();
}

std::string steps_text(const ProgressState& state) {
  return concat("step ", state.step, "/", state.total_steps);
}
std::string loss_text(const ProgressState& state) { return "loss " + fixed(state.loss, 4); }
std::string speed_text(const ProgressState& state) {
  return short_count(state.tokens_per_second) + " tokens/s";
}
std::string time_text(const ProgressState& state) {
  return "ETA " + (state.seconds_left < 0 ? "?" : duration(state.seconds_left));
}

std::string bar(double share, int cells, bool unicode) {
  static constexpr const char* eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string text;
  const int filled = static_cast<int>(share * cells * 8);
  for (int cell = 0; cell < cells; ++cell) {
    const int level = std::clamp(filled - 8 * cell, 0, 8);
    if (unicode) {
      text += level == 8 ? "█" : eighths[level];
    } else {
      text += level == 8 ? "#" : "-";
    }
  }
  return unicode ? "▕" + text + "▏" : "[" + text + "]";
}

int columns_of_stderr() {
  int columns = 0;
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  if (const char* text = std::getenv("COLUMNS"); text && columns <= 0) {
    const std::string_view digits(text);
    std::from_chars(digits.data(), digits.data() + digits.size(), columns);
  }
  return columns > 0 ? columns : 80;
}

/// The first of LC_ALL, LC_CTYPE and LANG that is set says which characters a terminal shows (POSIX).
bool locale_is_utf8() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(variable);
    if (!value || !*value) continue;
    std::string name = value;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    return name.find("utf-8") != std::string::npos || name.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

Display Display::of_stderr() {
  const char* terminal = std::getenv("TERM");
  const bool can_redraw = !terminal || std::string_view(terminal) != "dumb";
  return {.interactive = ::isatty(STDERR_FILENO) == 1 && can_redraw,
          .unicode = locale_is_utf8(),
          .columns = columns_of_stderr()};
}

std::string format_bar(const ProgressState& state, const Display& display) {
  // In the order in which they are kept when there is little room; the last column stays free, because
  // writing it makes some terminals begin a new line.
  const int room = display.columns - 1;
  std::string text;
  for (const std::string& part : {steps_text(state), loss_text(state), time_text(state), speed_text(state)}) {
    const std::string longer = text.empty() ? part : text + "  " + part;
    if (static_cast<int>(longer.size()) > room) break;
    text = longer;
  }
  const int cells = std::min(room - static_cast<int>(text.size()) - 4, widest_bar);
  if (cells < narrowest_bar) return text;
  const double share =
      state.total_steps > 0 ? static_cast<double>(state.step) / static_cast<double>(state.total_steps) : 0;
  return bar(std::clamp(share, 0.0, 1.0), cells, display.unicode) + "  " + text;
}

std::string format_line(const ProgressState& state) {
  return steps_text(state) + "  " + loss_text(state) + "  " + speed_text(state) + "  " + time_text(state);
}

Progress::Progress(int64_t total_steps, int64_t first_step, int64_t every_steps, std::ostream& out,
                   Display display)
    : first_step_(first_step), every_steps_(std::max<int64_t>(every_steps, 1)), out_(out), display_(display) {
  state_.step = first_step;
  state_.total_steps = total_steps;
}

Progress::~Progress() {
  if (visible_) out_ << std::endl;
}

void Progress::update(int64_t step, double loss, double tokens_per_second) {
  const Clock::time_point now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  state_.step = step;
  state_.loss = loss;
  state_.tokens_per_second = tokens_per_second;
  const auto done = static_cast<double>(step - first_step_);
  state_.seconds_left = done > 0 ? elapsed / done * static_cast<double>(state_.total_steps - step) : -1;

  const bool is_last = step == state_.total_steps;
  if (display_.interactive) {
    if (is_last || now - drawn_ >= redraw_interval) draw();
  } else if (is_last || step % every_steps_ == 0 || step == first_step_ + 1) {
    out_ << format_line(state_) << std::endl;
  }
}

void Progress::print(const std::string& text) {
  const bool was_visible = visible_;
  erase();
  out_ << text << (text.ends_with('\n') ? "" : "\n") << std::flush;
  if (was_visible) draw();
}

void Progress::draw() {
  out_ << "\r" << format_bar(state_, display_) << "\x1b[K" << std::flush;
  visible_ = true;
  drawn_ = Clock::now();
}

void Progress::erase() {
  if (!visible_) return;
  out_ << "\r\x1b[K" << std::flush;
  visible_ = false;
}

}  // namespace lockstep
