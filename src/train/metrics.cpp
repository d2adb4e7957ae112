// SPDX-License-Identifier: Apache-2.0
#include "train/metrics.h"

#include <array>
#include <bit>
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

#include "core/error.h"
#include "core/log.h"
#include "train/parameters_hash.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string bits_of(float value) { return hash_text(std::bit_cast<uint32_t>(value)).substr(8); }

/// The double whose shortest text is the shortest text of the float: 4.17 instead of 4.170000076293945.
double printable(float value) {
  std::array<char, 32> digits{};
  double shortest = value;
  if (!std::isfinite(value)) return shortest;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  std::from_chars(digits.data(), end, shortest);
  return shortest;
}

double rounded(double value, double digits) { return std::round(value * digits) / digits; }

/// Bytes of the leading lines whose step is at most `last_step`; a torn line ends them.
int64_t length_up_to(const std::string& path, int64_t last_step) {
  std::ifstream file(path, std::ios::binary);
  int64_t length = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const Json object = Json::parse(line, nullptr, false);
    const bool has_step = object.is_object() && object.contains("step") && object["step"].is_number_integer();
    if (!has_step || object["step"].get<int64_t>() > last_step) break;
    length += static_cast<int64_t>(line.size()) + 1;
  }
  return length;
}

}  // namespace

std::string to_json(const StepMetrics& metrics) {
  Json line = {
      {"step", metrics.step},
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
  if (metrics.validation_loss) {
    const auto validation_loss = static_cast<float>(*metrics.validation_loss);
    line["val_loss"] = *metrics.validation_loss;
    line["val_loss_bits"] = bits_of(validation_loss);
  }
  return line.dump();
}

MetricsWriter::MetricsWriter(const std::string& path, int64_t resume_step) : path_(path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  require(file_ >= 0, "log.dir: ", path, " cannot be written: ", std::strerror(errno));
  // Lines are in the order of steps, so cutting the tail off in place is enough: it is atomic, and works on a
  // full disk.
  const bool is_cut = ::ftruncate(file_, length_up_to(path, resume_step)) == 0 && ::fsync(file_) == 0;
  if (!is_cut) {
    const std::string reason = std::strerror(errno);
    ::close(file_);
    throw UserError(concat("log.dir: ", path, " cannot be cut back to step ", resume_step, ": ", reason));
  }
}

MetricsWriter::~MetricsWriter() { ::close(file_); }

void MetricsWriter::write(const StepMetrics& metrics) { append(to_json(metrics)); }

void MetricsWriter::sync() { ::fsync(file_); }

void MetricsWriter::finish(uint64_t parameters_hash) {
  append(Json{{"done", true}, {"parameters_hash", hash_text(parameters_hash)}}.dump());
  sync();
}

void MetricsWriter::append(std::string line) {
  line += '\n';
  const ssize_t written = ::write(file_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return;
  const std::string reason = written < 0 ? std::strerror(errno) : "the disk is full";
  struct stat status {};
  // A part of a line would spoil the next one.
  const bool is_whole =
      written <= 0 || (::fstat(file_, &status) == 0 && ::ftruncate(file_, status.st_size - written) == 0);
  if (failed_) return;
  failed_ = true;
  log_error(concat(path_, " misses lines: ", reason, is_whole ? "" : "; its last line is torn",
                   "; training goes on"));
}

}  // namespace lockstep
