// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/metrics.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"
#include "lockstep/json/json_field.h"
#include "lockstep/metrics/chain.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

/// Returns the double with the float's shortest text: 4.17 instead of 4.170000076293945.
double printable(float value) {
  std::array<char, 32> digits{};
  double shortest = value;
  if (!std::isfinite(value)) return shortest;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  std::from_chars(digits.data(), end, shortest);
  return shortest;
}

double rounded(double value, double digits) { return std::round(value * digits) / digits; }

/// Returns the step of a line, or nothing if it has no step that is an integer.
std::optional<int64_t> step_of(const Json& line) {
  const auto step = line.find("step");
  if (step == line.end() || !step->is_number_integer()) return std::nullopt;
  return step->get<int64_t>();
}

/// Adds a loss as a double, and its bits as an fp32 number.
void add_validation(Json& line, double loss) {
  line["val_loss"] = loss;
  line["val_loss_bits"] = RunChain::bits_text(static_cast<float>(loss));
}

constexpr int64_t tail_bytes = 65536;
constexpr size_t most_kept_lines = 100'000;

/// A reader of the whole lines of a file from any byte. It reads pieces of 8 KiB.
class Lines {
 public:
  explicit Lines(const std::string& path) {
    // A FIFO would block. MetricsWriter refuses whatever is not a regular file.
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path, ignored))) return;
    file_.open(path, std::ios::binary | std::ios::ate);
    bytes_ = file_.tellg();
    // Without its lines the file would be cut.
    expect(bytes_ >= 0, path, " cannot be read");
  }

  int64_t bytes() const { return bytes_; }
  /// Goes to the first line that begins at this byte or later.
  void seek(int64_t begin) {
    file_.clear();
    file_.seekg(end_ = std::max<int64_t>(0, begin - 1));
    if (begin > 0) next();
  }
  /// Reads the next line. Returns false if no whole line is left.
  bool next() {
    begin_ = end_;
    const bool is_whole = std::getline(file_, text_) && !file_.eof();
    expect(!file_.bad(), "the lines of metrics.jsonl cannot be read");
    if (!is_whole) return false;
    end_ = begin_ + std::ssize(text_) + 1;
    return true;
  }
  /// Returns the line as JSON, or null if it is no JSON.
  Json json() const {
    try {
      return parse_json<Json>(text_, "a line", tail_bytes);
    } catch (const UserError&) {
      return {};
    }
  }
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }

 private:
  std::ifstream file_;
  std::string text_;
  int64_t bytes_ = 0, begin_ = 0, end_ = 0;
};

/// Returns how many bytes the lines up to `last_step` have. Lines are in the order of their steps, so this
/// takes some thirty small reads however long the file is. Lines without a step are passed over.
int64_t bytes_up_to(const std::string& path, int64_t last_step) {
  Lines lines(path);
  int64_t kept = 0, open = lines.bytes();  // lines that begin at `open` or later are not kept
  while (open - kept > tail_bytes) {
    const int64_t middle = kept + (open - kept) / 2;
    std::optional<int64_t> step;
    for (lines.seek(middle); !step && lines.next() && lines.begin() < open;) step = step_of(lines.json());
    if (step && *step <= last_step)
      kept = lines.end();
    else
      open = middle;
  }
  for (lines.seek(kept); lines.next() && lines.begin() < open;)
    if (const auto step = step_of(lines.json()); step && *step <= last_step) kept = lines.end();
  return kept;
}

/// Returns the whole lines in the last 64 KiB of a file, each with the byte where it begins.
std::vector<std::pair<int64_t, Json>> last_lines(const std::string& path) {
  Lines lines(path);
  std::vector<std::pair<int64_t, Json>> objects;
  for (lines.seek(std::max<int64_t>(0, lines.bytes() - tail_bytes)); lines.next();)
    if (Json object = lines.json(); object.is_object())
      objects.emplace_back(lines.begin(), std::move(object));
  return objects;
}

}  // namespace

MetricsEnd read_metrics_end(const std::string& path) {
  MetricsEnd end;
  for (const auto& [begin, line] : last_lines(path)) {
    const std::optional<int64_t> step = step_of(line);
    if (line.contains("step") && !step) continue;
    end.step = step.value_or(end.step);
    const auto hash = line.find("parameters_hash");
    end.parameters_hash = hash != line.end() && hash->is_string() ? hash->get<std::string>() : "";
    const auto patience = line.find("patience");
    end.patience = patience != line.end() && patience->is_number_integer() ? patience->get<int64_t>() : 0;
  }
  return end;
}

std::string to_json(const StepMetrics& metrics) {
  Json line = {
      {"step", metrics.step},
      {"epoch", metrics.epoch},
      {"time", rounded(metrics.unix_seconds, 1000)},
      {"loss", printable(metrics.loss)},
      {"loss_bits", RunChain::bits_text(metrics.loss)},
      {"lr", metrics.learning_rate},
      {"grad_norm", metrics.gradient_norm},
      {"tokens_per_s", rounded(metrics.tokens_per_second, 10)},
      {"step_ms", rounded(metrics.step_ms, 1000)},
      {"exposed_comm_ms", rounded(metrics.exposed_communication_ms, 1000)},
      {"data_wait_ms", rounded(metrics.data_wait_ms, 1000)},
      {"mfu", rounded(metrics.model_flops_utilization, 1e6)},
      {"memory_mib", rounded(metrics.memory_mib, 1000)},
  };
  if (metrics.grad_scale) {
    line["loss_scale"] = metrics.grad_scale->scale;
    line["skipped_steps"] = metrics.grad_scale->skipped_steps;
  }
  if (metrics.validation_loss) add_validation(line, *metrics.validation_loss);
  return line.dump();
}

MetricsWriter::MetricsWriter(const std::string& path, int64_t resume_step, std::function<void()> guard)
    : path_(path), guard_(std::move(guard)) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  OpenedFile opened = open_own_file(path, O_WRONLY | O_CREAT | O_APPEND);
  require_of_system(bool(opened.file), opened.error,
                    concat("log.dir: ", path, " cannot be written: ", opened.reason));
  file_ = std::move(opened.file);
  const int64_t kept = bytes_up_to(path, resume_step);
  const bool is_cut = ::ftruncate(file_.get(), kept) == 0 && ::fsync(file_.get()) == 0;
  require_of_system(
      is_cut, errno,
      concat("log.dir: ", path, " cannot be cut back to step ", resume_step, ": ", std::strerror(errno)));
  if (const int64_t step = read_metrics_end(path).step; kept > 0 && step < resume_step)
    log_warning(concat(path, " lacks the lines of steps ", step + 1, " to ", resume_step,
                       ": an earlier start could not write them"));
  // An earlier start that still runs sees that the file is another's, even if nothing was cut.
  ::futimens(file_.get(), nullptr);
  changed_ = changed();
}

MetricsWriter::~MetricsWriter() {
  if (kept_.empty()) return;
  try {
    if (guard_) guard_();
    if (write_kept()) return;
  } catch (const std::exception&) {
    // The file belongs to another start of the run, for example.
  }
  log_error(missing());
}

struct timespec MetricsWriter::changed() const {
  struct stat status {};
  ::fstat(file_.get(), &status);
  return status.st_mtim;
}

void MetricsWriter::write(const StepMetrics& metrics) { append(to_json(metrics)); }

void MetricsWriter::add_validation_loss(int64_t step, double loss) {
  if (!kept_.empty()) {
    Json line = Json::parse(kept_.back());
    if (step_of(line) != step) return;
    add_validation(line, loss);
    kept_.back() = line.dump() + "\n";
    return;
  }
  auto lines = last_lines(path_);
  if (lines.empty() || step_of(lines.back().second) != step) {
    log_warning(
        concat(path_, " has no line of step ", step, "; its validation loss ", loss, " is not recorded"));
    return;
  }
  add_validation(lines.back().second, loss);
  const std::string line = lines.back().second.dump() + "\n";
  // Overwrites the shorter line in one write, so the file always has a whole line. It must not use O_APPEND.
  const OpenedFile opened = open_own_file(path_, O_WRONLY);
  const ssize_t written =
      opened.file ? ::pwrite(opened.file.get(), line.data(), line.size(), lines.back().first) : ssize_t{-1};
  if (written != static_cast<ssize_t>(line.size())) {
    // A full disk leaves the shorter line, or a torn one, which is cut off. The line waits in memory.
    reason_ = !opened.file ? opened.reason : written < 0 ? std::strerror(errno) : "the disk is full";
    const bool is_cut = ::ftruncate(file_.get(), lines.back().first) == 0;
    if (is_cut) kept_.push_back(line);
    log_error(concat(path_, ": the line of step ", step,
                     is_cut ? " waits in memory: " : " may be torn: ", reason_));
  }
  changed_ = changed();
}

void MetricsWriter::sync() { ::fsync(file_.get()); }

bool MetricsWriter::finish(uint64_t parameters_hash, int64_t patience) {
  Json line{{"done", true}, {"parameters_hash", hash_text(parameters_hash)}};
  if (patience > 0) line.update({{"stopped_early", true}, {"patience", patience}});
  append(line.dump());
  sync();
  const bool is_complete = kept_.empty() && dropped_ == 0;
  if (!is_complete) log_error(missing());
  kept_.clear();
  return is_complete;
}

void MetricsWriter::append(const std::string& line) {
  const auto [seconds, nanoseconds] = changed();
  if (guard_ && (seconds != changed_.tv_sec || nanoseconds != changed_.tv_nsec)) guard_();
  const bool was_complete = kept_.empty();
  if (kept_.size() < most_kept_lines)
    kept_.push_back(line + "\n");
  else
    ++dropped_;
  const bool is_complete = write_kept();
  if (was_complete && !is_complete)
    log_error(concat(path_, ": lines wait in memory: ", reason_, "; training continues"));
  if (!was_complete && is_complete) log_info(concat(path_, ": the lines that waited in memory are written"));
}

/// Writes the lines in memory as far as the disk takes them. Returns whether none is left.
bool MetricsWriter::write_kept() {
  for (; !kept_.empty(); kept_.pop_front()) {
    const std::string& line = kept_.front();
    const ssize_t written = ::write(file_.get(), line.data(), line.size());
    if (written == static_cast<ssize_t>(line.size())) continue;
    reason_ = written < 0 ? std::strerror(errno) : "the disk is full";
    struct stat status {};
    // A partial line would corrupt the next one.
    const bool is_whole = written <= 0 || (::fstat(file_.get(), &status) == 0 &&
                                           ::ftruncate(file_.get(), status.st_size - written) == 0);
    if (!is_whole) reason_ += "; the last line is torn";
    break;
  }
  changed_ = changed();
  return kept_.empty();
}

/// Describes the lines that the file lacks.
std::string MetricsWriter::missing() const {
  const int64_t lines = std::ssize(kept_) + dropped_;
  return concat(path_, " lacks its last ", lines > 1 ? counted(lines, "line") : "line", ": ", reason_);
}

}  // namespace lockstep
