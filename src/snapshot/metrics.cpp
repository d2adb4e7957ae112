// SPDX-License-Identifier: Apache-2.0
#include "snapshot/metrics.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

/// Returns the bits in hexadecimal. Replaces a NaN by quiet_NaN(), because processors produce NaNs of
/// different signs.
std::string bits_of(float value) {
  const float named = std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value;
  return hash_text(std::bit_cast<uint32_t>(named)).substr(8);
}

/// Returns the double whose shortest text equals the float's shortest text: 4.17 instead of
/// 4.170000076293945.
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

/// Returns the leading lines whose step is at most `last_step`. Stops at a torn line.
std::string lines_up_to(const std::string& path, int64_t last_step) {
  std::ifstream file(path, std::ios::binary);
  std::string lines;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const std::optional<int64_t> step = step_of(Json::parse(line, nullptr, false));
    if (!step || *step > last_step) break;
    lines += line + '\n';
  }
  return lines;
}

/// Adds a loss as a double, and its bits as an fp32 number.
void add_validation(Json& line, double loss) {
  line["val_loss"] = loss;
  line["val_loss_bits"] = bits_of(static_cast<float>(loss));
}

/// Returns the whole lines in the last 64 KiB of a file, each with the byte where it begins.
std::vector<std::pair<int64_t, Json>> last_lines(const std::string& path) {
  constexpr int64_t most_bytes = 65536;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  int64_t begin = std::max<int64_t>(0, static_cast<int64_t>(file.tellg()) - most_bytes);
  file.seekg(begin);
  std::vector<std::pair<int64_t, Json>> lines;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    // The first line may be cut. It is not a JSON object then.
    Json object = Json::parse(line, nullptr, false);
    if (object.is_object()) lines.emplace_back(begin, std::move(object));
    begin += static_cast<int64_t>(line.size()) + 1;
  }
  return lines;
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
      {"loss_bits", bits_of(metrics.loss)},
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

MetricsWriter::MetricsWriter(const std::string& path, int64_t resume_step) : path_(path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const std::string kept = lines_up_to(path, resume_step);
  // Moves the kept lines to a new file if the disk has room for it. An earlier start of this run may still
  // append to the old file. Its lines are lost then.
  try {
    if (::access(path.c_str(), R_OK) == 0) write_file(path, kept);
  } catch (const Error& problem) {
    log_warning(problem.what());
  }
  file_ = Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  require(bool(file_), "log.dir: ", path, " cannot be written: ", std::strerror(errno));
  // If the disk is full, the file is truncated in place. This suffices because lines are in the order of
  // steps.
  const bool is_cut = ::ftruncate(file_.get(), std::ssize(kept)) == 0 && ::fsync(file_.get()) == 0;
  require(is_cut, "log.dir: ", path, " cannot be cut back to step ", resume_step, ": ", std::strerror(errno));
}

void MetricsWriter::write(const StepMetrics& metrics) { append(to_json(metrics)); }

void MetricsWriter::add_validation_loss(int64_t step, double loss) {
  auto lines = last_lines(path_);
  if (lines.empty() || step_of(lines.back().second) != step) {
    log_warning(
        concat(path_, " has no line of step ", step, "; its validation loss ", loss, " is not recorded"));
    return;
  }
  add_validation(lines.back().second, loss);
  const std::string line = lines.back().second.dump() + "\n";
  // Overwrites the shorter line in one write, so the file has a whole line at any time. This needs a
  // descriptor that does not append.
  const Descriptor file(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
  const ssize_t written =
      file ? ::pwrite(file.get(), line.data(), line.size(), lines.back().first) : ssize_t{-1};
  if (written != static_cast<ssize_t>(line.size()))
    log_error(
        concat(path_, ": the validation loss of step ", step, " cannot be added: ", std::strerror(errno)));
}

void MetricsWriter::sync() { ::fsync(file_.get()); }

void MetricsWriter::finish(uint64_t parameters_hash, int64_t patience) {
  Json line{{"done", true}, {"parameters_hash", hash_text(parameters_hash)}};
  if (patience > 0) line.update({{"stopped_early", true}, {"patience", patience}});
  append(line.dump());
  sync();
}

void MetricsWriter::append(std::string line) {
  line += '\n';
  const ssize_t written = ::write(file_.get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return;
  const std::string reason = written < 0 ? std::strerror(errno) : "the disk is full";
  struct stat status {};
  // A partial line would corrupt the next one.
  const bool is_whole = written <= 0 || (::fstat(file_.get(), &status) == 0 &&
                                         ::ftruncate(file_.get(), status.st_size - written) == 0);
  if (failed_) return;
  failed_ = true;
  log_error(concat(path_, ": lines are missing: ", reason, is_whole ? "" : "; the last line is torn",
                   "; training continues"));
}

}  // namespace lockstep
