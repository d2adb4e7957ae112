// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <cctype>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/version.h"
#include "lockstep/kernels/processor.h"

namespace lockstep {
namespace {

std::string commit() {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen("'" LOCKSTEP_SOURCE_DIR "/bench/commit.sh' 2>/dev/null", "r"), pclose);
  char text[128] = {};
  if (!pipe || !std::fgets(text, sizeof(text), pipe.get())) return "unknown";
  std::string line = text;
  return line.substr(0, line.find('\n'));
}

std::string date() {
  char text[32] = {};
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%MZ", gmtime_r(&now, &utc));
  return text;
}

/// Returns the load average of the last minute. If it exceeds the number of cores the figures are noise.
std::string load() {
  std::string text = "unknown";
  std::ifstream("/proc/loadavg") >> text;
  return text;
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

/// Returns the first version number of "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  ...".
std::string gpu_driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;)
    if (std::isdigit(static_cast<unsigned char>(word[0])) && word.find('.') != std::string::npos) return word;
  return "unknown";
}

/// Converts "NVIDIA H200" to "nvidia_h200".
std::string file_name_of(const std::string& device) {
  std::string name;
  for (const char letter : device)
    name += std::isalnum(static_cast<unsigned char>(letter))
                ? static_cast<char>(std::tolower(static_cast<unsigned char>(letter)))
                : '_';
  return name;
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const char* quote = cells[i].find(',') == std::string::npos ? "" : "\"";
    line += concat(i == 0 ? "" : ",", quote, cells[i], quote);
  }
  return line + "\n";
}

}  // namespace

Report::Report(const std::string& name, std::vector<Column> columns, Scale scale, bool shown)
    : file_(name), columns_(std::move(columns)), shown_(shown) {
  if (!shown_) return;
  place_ = {{"date", date()}, {"commit", commit()}};
  if (const int gpu = gpu_of(current_stream()); gpu >= 0) {
    const std::string device = gpu_properties(gpu).name;
    file_ = concat(file_name_of(device), name.empty() ? "" : "_", name);
    place_.insert(place_.end(), {{"device", device}, {"driver", gpu_driver()}});
    if (!name.empty()) place_.emplace_back("ranks", concat(scale.ranks));
  } else {
    place_.insert(place_.end(), {{"device", processor_name()},
                                 {"cores", concat(sysconf(_SC_NPROCESSORS_ONLN))},
                                 {"compiler", concat(compiler(), " ", instruction_set())},
                                 {"load", load()},
                                 {"ranks", concat(scale.ranks)},
                                 {"threads", concat(scale.threads)}});
  }
  std::cout << file_ << ":";
  for (const auto& [key, value] : place_)
    std::cout << " " << key << " " << value << (key == place_.back().first ? "\n" : ",");
  for (const Column& column : columns_) std::cout << std::setw(column.width) << column.name;
  std::cout << std::endl;
}

void Report::add(std::vector<std::string> cells) {
  expect(cells.size() == columns_.size(), "a row of ", cells.size(), " cells for ", columns_.size(),
         " columns");
  if (!shown_) return;
  for (size_t i = 0; i < cells.size(); ++i) std::cout << std::setw(columns_[i].width) << cells[i];
  std::cout << std::endl;
  rows_.push_back(std::move(cells));
}

void Report::append() const {
  if (!shown_) return;
  std::vector<std::string> header, place;
  for (const auto& [key, value] : place_) {
    header.push_back(key);
    place.push_back(value);
  }
  for (const Column& column : columns_) header.push_back(column.name);

  const std::string path = concat(LOCKSTEP_SOURCE_DIR "/bench/results/", file_, ".csv");
  std::ifstream before(path);
  std::string first_line;
  const bool is_empty = !std::getline(before, first_line);
  require(is_empty || first_line + "\n" == csv_line(header), path,
          " has different columns: move it away, or append with the program that wrote it");
  std::ofstream file(path, std::ios::app);
  if (is_empty) file << csv_line(header);
  for (std::vector<std::string> cells : rows_) {
    cells.insert(cells.begin(), place.begin(), place.end());
    file << csv_line(cells);
  }
  require(file.flush().good(), path, " cannot be written");
}

GpuReport::GpuReport(std::string benchmark)
    : benchmark_(std::move(benchmark)),
      report_("",
              {{"benchmark", 14},
               {"case", 26},
               {"shape", 18},
               {"dtype", 6},
               {"us", 12},
               {"spread", 8},
               {"rate"},
               {"unit"},
               {"ceiling"},
               {"percent"},
               {"peer", 12},
               {"peer_rate"}},
              {}) {}

void GpuReport::add(std::vector<std::string> cells) {
  cells.insert(cells.begin(), benchmark_);
  report_.add(std::move(cells));
}

}  // namespace lockstep
