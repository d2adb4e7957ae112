// SPDX-License-Identifier: Apache-2.0
#include "emulator/arena.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "emulator/emulator.h"
#include "lockstep/core/error.h"

namespace emulator {
namespace {

constexpr size_t arena_bytes = size_t{32} << 30;
constexpr size_t gap_bytes = 4096;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Arena& Arena::get() {
  static auto* arena = new Arena;
  return *arena;
}

Arena::Arena()
    : memory_(arena_bytes),
      valid_(arena_bytes / granule * sizeof(uint16_t)),
      shadow_(arena_bytes),
      cursor_(gap_bytes) {}

size_t Arena::limit_bytes() {
  const char* text = std::getenv("LOCKSTEP_EMULATED_GPU_BYTES");
  return text ? static_cast<size_t>(std::strtoull(text, nullptr, 10)) : size_t{4} << 30;
}

size_t Arena::find_room(size_t bytes) {
  for (size_t at = cursor_, wraps = 0; wraps < 2;) {
    if (at + bytes > arena_bytes) {
      at = gap_bytes;
      ++wraps;
    }
    auto next = live_.lower_bound(at);
    if (next != live_.begin()) {
      const auto before = std::prev(next);
      at = std::max(at, round_up(before->first + before->second.bytes + gap_bytes, granule));
    }
    if (next == live_.end() ? at + bytes <= arena_bytes : at + bytes <= next->first) return at;
    at = next == live_.end() ? arena_bytes : next->first + 1;
  }
  return arena_bytes;
}

void* Arena::allocate(size_t bytes, Kind kind, int device) {
  const std::lock_guard lock(mutex_);
  if (kind == Kind::device && used_[device] + bytes > limit_bytes()) return nullptr;
  const size_t room = round_up(std::max<size_t>(bytes, 1), granule) + gap_bytes;
  const size_t at = find_room(room);
  if (at == arena_bytes) return nullptr;
  cursor_ = at + room;
  freed_.erase(freed_.lower_bound(at), freed_.lower_bound(at + room));
  live_[at] = {bytes, kind, device, made_++};
  if (kind == Kind::device) used_[device] += bytes;
  mark(at, bytes, bytes);
  if (!is_listing() || kind == Kind::pinned) std::memset(memory_.begin() + at, 0xff, bytes);
  return memory_.begin() + at;
}

bool Arena::release(void* address, Kind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = contains(address) ? live_.find(offset(address)) : live_.end();
  if (found == live_.end() || found->second.kind != kind) return false;
  const auto [at, allocation] = *found;
  live_.erase(found);
  freed_[at] = allocation;
  if (kind == Kind::device) used_[allocation.device] -= allocation.bytes;
  mark(at, allocation.bytes, 0);
  memory_.forget(at, allocation.bytes);
  shadow_.forget(at, allocation.bytes);
  return true;
}

void Arena::use_only(const void* address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = contains(address) ? live_.find(offset(address)) : live_.end();
  lockstep::expect(found != live_.end() && bytes <= found->second.bytes, "emulator: no allocation of ", bytes,
                   " bytes begins there");
  mark(found->first, found->second.bytes, bytes);
}

void Arena::mark(size_t at, size_t bytes, size_t used) {
  for (size_t i = 0; i < bytes; i += granule)
    valid()[(at + i) / granule] = static_cast<uint16_t>(used > i ? std::min(granule, used - i) : 0);
}

bool Arena::is_valid_over_granules(size_t at, size_t bytes) const {
  const size_t end = at + bytes;
  if (end > arena_bytes) return false;
  for (size_t first = at / granule * granule; first < end; first += granule)
    if (std::min(end - first, granule) > valid()[first / granule]) return false;
  return true;
}

const void* Arena::find(const void* address, Allocation& allocation) {
  const std::lock_guard lock(mutex_);
  if (!contains(address)) return nullptr;
  auto next = live_.upper_bound(offset(address));
  if (next == live_.begin()) return nullptr;
  --next;
  if (offset(address) >= next->first + std::max<size_t>(next->second.bytes, 1)) return nullptr;
  allocation = next->second;
  return memory_.begin() + next->first;
}

std::string Arena::describe(const void* address) {
  const std::lock_guard lock(mutex_);
  const size_t at = offset(address);
  const auto before = [at](const std::map<size_t, Allocation>& map) {
    auto next = map.upper_bound(at);
    return next == map.begin() ? map.end() : std::prev(next);
  };
  const auto name = [at](size_t begin, const Allocation& allocation) {
    return lockstep::concat("allocation ", allocation.number, " (", allocation.bytes, " bytes) + ",
                            at - begin);
  };
  const auto freed = before(freed_);
  if (freed != freed_.end() && at < freed->first + freed->second.bytes)
    return "freed " + name(freed->first, freed->second);
  const auto live = before(live_);
  if (live != live_.end() && at < live->first + live->second.bytes + gap_bytes)
    return name(live->first, live->second);
  const auto after = live_.upper_bound(at);
  if (after != live_.end() && after->first - at <= gap_bytes)
    return lockstep::concat("allocation ", after->second.number, " (", after->second.bytes, " bytes) - ",
                            after->first - at);
  return "no allocation";
}

std::vector<Arena::Live> Arena::live() {
  const std::lock_guard lock(mutex_);
  std::vector<Live> all;
  for (const auto& [at, allocation] : live_) all.push_back({memory_.begin() + at, allocation});
  return all;
}

size_t Arena::used_bytes(int device) {
  const std::lock_guard lock(mutex_);
  return used_[device];
}

bool is_device_memory(const void* address, size_t bytes) { return Arena::get().is_valid(address, bytes); }

void set_used_bytes(const void* allocation, size_t bytes) { Arena::get().use_only(allocation, bytes); }

}  // namespace emulator
