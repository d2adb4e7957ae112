// SPDX-License-Identifier: Apache-2.0
#include "emulator/recorder.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

#include "emulator/arena.h"
#include "emulator/block.h"
#include "lockstep/core/error.h"

// The format, little-endian (tests/ptx/recording.py reads it): the eight letters LOCKREC1; the grid and the
// block, three u32 each; u64 dynamic shared bytes; three texts (file, symbol, parameters), each after its u64
// length; u64 regions. A region is: u64 address, u64 bytes, u8 kind (0 device, 1 pinned), u8 changed, the
// bytes before, one bit for each group of 16 bytes that nothing has written, and if it changed the bytes
// after.

namespace emulator {
namespace {

constexpr size_t group_bytes = 16;
constexpr size_t most_recorded_bytes = size_t{64} << 20;

const char* folder() {
  static const char* name = std::getenv("LOCKSTEP_EMULATOR_RECORD");
  return name;
}

size_t limit() {
  const char* text = std::getenv("LOCKSTEP_EMULATOR_RECORD_LIMIT");
  return text == nullptr ? 4 : std::strtoull(text, nullptr, 10);
}

/// What is known over all launches of the process.
struct Known {
  std::mutex mutex;
  std::map<uint64_t, std::vector<bool>>
      host_writes;  ///< groups that the host wrote, by the allocation's number
  std::map<const void*, std::set<std::string>> launches;  ///< recorded shapes and arguments, by kernel
  size_t files = 0;
};

Known& known() {
  static auto* instance = new Known;
  return *instance;
}

struct Region {
  Arena::Live live;
  std::vector<std::byte> before;
  std::vector<std::byte> unwritten;
};

bool is_poison(const std::byte* bytes, size_t count) {
  return std::all_of(bytes, bytes + count, [](std::byte value) { return value == std::byte{0xff}; });
}

/// Returns true if no kernel wrote the group. Its shadow has the epoch of the last write.
bool is_untouched_by_kernels(const std::byte* group, size_t count) {
  Arena& arena = Arena::get();
  for (size_t i = 0; i < count; i += 4) {
    const Cell& word = arena.shadow().word(arena.offset(group + i));
    if (word.write_epoch != 0 || (word.flags & Cell::split) != 0) return false;
  }
  return true;
}

/// Returns one bit for each group of bytes: 1 if it holds poison that neither the host nor a kernel wrote.
std::vector<std::byte> find_unwritten(const Arena::Live& live) {
  const size_t groups = (live.allocation.bytes + group_bytes - 1) / group_bytes;
  std::vector<std::byte> bits((groups + 7) / 8);
  if (live.allocation.kind != Arena::Kind::device) return bits;
  const std::vector<bool>& by_host = known().host_writes[live.allocation.number];
  for (size_t group = 0; group < groups; ++group) {
    const std::byte* begin = live.begin + group * group_bytes;
    const size_t count = std::min(group_bytes, live.allocation.bytes - group * group_bytes);
    if ((group < by_host.size() && by_host[group]) || !is_poison(begin, count) ||
        !is_untouched_by_kernels(begin, count))
      continue;
    bits[group / 8] |= std::byte(1u << (group % 8));
  }
  return bits;
}

class Writer {
 public:
  explicit Writer(const std::filesystem::path& path) : file_(path, std::ios::binary) {}
  template <class T>
  void number(T value) {
    bytes(&value, sizeof(value));
  }
  void text(const void* data, size_t count) {
    number(uint64_t{count});
    bytes(data, count);
  }
  void bytes(const void* data, size_t count) {
    file_.write(static_cast<const char*>(data), static_cast<std::streamsize>(count));
  }
  void close(const std::filesystem::path& path) {
    file_.close();
    lockstep::expect(!file_.fail(), "emulator: cannot write the recorded launch ", path.string());
  }

 private:
  std::ofstream file_;
};

class FileRecording : public Recording {
 public:
  FileRecording(const Launch& launch, std::vector<std::byte> parameters, size_t number)
      : launch_(launch), parameters_(std::move(parameters)), number_(number) {
    for (const Arena::Live& live : Arena::get().live())
      regions_.push_back({live, {live.begin, live.begin + live.allocation.bytes}, find_unwritten(live)});
  }

  void finish() override {
    const Symbol symbol = symbol_of(launch_.kernel);
    std::filesystem::create_directories(folder());
    const auto path = std::filesystem::path(folder()) / lockstep::concat(getpid(), "_", number_, ".launch");
    Writer writer(path);
    writer.bytes("LOCKREC1", 8);
    for (const dim3& extent : {launch_.blocks, launch_.threads})
      for (const uint32_t count : {extent.x, extent.y, extent.z}) writer.number(count);
    writer.number(uint64_t{launch_.shared_bytes});
    writer.text(symbol.file.data(), symbol.file.size());
    writer.text(symbol.name.data(), symbol.name.size());
    writer.text(parameters_.data(), parameters_.size());
    writer.number(uint64_t{regions_.size()});
    for (const Region& region : regions_) write(writer, region);
    writer.close(path);
  }

 private:
  static void write(Writer& writer, const Region& region) {
    const size_t count = region.before.size();
    const bool is_changed = std::memcmp(region.before.data(), region.live.begin, count) != 0;
    writer.number(reinterpret_cast<uint64_t>(region.live.begin));
    writer.number(uint64_t{count});
    writer.number(static_cast<uint8_t>(region.live.allocation.kind == Arena::Kind::pinned));
    writer.number(static_cast<uint8_t>(is_changed));
    writer.bytes(region.before.data(), count);
    writer.bytes(region.unwritten.data(), region.unwritten.size());
    if (is_changed) writer.bytes(region.live.begin, count);
  }

  Launch launch_;
  std::vector<std::byte> parameters_;
  size_t number_;
  std::vector<Region> regions_;
};

/// Returns what makes a launch a case of its own: its shape and its arguments.
std::string describe_case(const Launch& launch, const std::vector<std::byte>& parameters) {
  std::string text = lockstep::concat(launch.blocks.x, ",", launch.blocks.y, ",", launch.blocks.z, ",",
                                      launch.threads.x, ",", launch.threads.y, ",", launch.shared_bytes, ":");
  return text.append(reinterpret_cast<const char*>(parameters.data()), parameters.size());
}

}  // namespace

bool is_recording() { return folder() != nullptr; }

void note_host_write(const void* address, size_t bytes) {
  Arena::Allocation allocation = {};
  const void* begin = Arena::get().find(address, allocation);
  if (begin == nullptr || bytes == 0) return;
  const std::lock_guard lock(known().mutex);
  std::vector<bool>& groups = known().host_writes[allocation.number];
  groups.resize((allocation.bytes + group_bytes - 1) / group_bytes);
  const auto first =
      static_cast<size_t>(static_cast<const std::byte*>(address) - static_cast<const std::byte*>(begin));
  for (size_t group = first / group_bytes; group <= (first + bytes - 1) / group_bytes; ++group)
    groups[group] = true;
}

std::unique_ptr<Recording> record(const Launch& launch) {
  if (!is_recording() || launch.pack == nullptr) return nullptr;
  std::vector<std::byte> parameters = launch.pack(launch.arguments);
  size_t bytes = 0;
  for (const Arena::Live& live : Arena::get().live()) bytes += live.allocation.bytes;
  if (bytes > most_recorded_bytes) return nullptr;
  const std::lock_guard lock(known().mutex);
  std::set<std::string>& cases = known().launches[launch.kernel];
  if (cases.size() >= limit() || !cases.insert(describe_case(launch, parameters)).second) return nullptr;
  return std::make_unique<FileRecording>(launch, std::move(parameters), known().files++);
}

}  // namespace emulator
