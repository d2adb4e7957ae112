// SPDX-License-Identifier: Apache-2.0

// The functions that the compiler calls in code built with -fsanitize=thread,alignment,bounds. Here they call
// the emulator's own checkers. The compiler defines their names.

#include <algorithm>
#include <cstring>

#include "emulator/block.h"
#include "lockstep/core/error.h"

using emulator::Touch;
using emulator::touch;

namespace {

/// A source location, in the compiler's format.
struct SourceLocation {
  const char* file;
  uint32_t line;
  uint32_t column;
};

/// Checks that an address is a multiple of the access size. The compiler assumes that, and a GPU requires it.
inline void check_alignment(const void* address, size_t bytes, const void* code) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) [[unlikely]]
    emulator::report_misaligned(address, bytes, code);
}

[[noreturn]] void report(const SourceLocation& location, const char* what) {
  emulator::stop_watching();
  const std::string text = lockstep::concat(
      what, " at ", emulator::describe({location.file, static_cast<int>(location.line)}), ",");
  if (emulator::running_block != nullptr) emulator::running_block->fail([&] { return text; });
  throw lockstep::Error("emulator: " + text + " on the host");
}

}  // namespace

#define LOCKSTEP_HOOKS(bytes)                                                          \
  void __tsan_read##bytes(void* address) {                                             \
    check_alignment(address, std::min<size_t>(bytes, 8), __builtin_return_address(0)); \
    touch(address, bytes, Touch::read, __builtin_return_address(0));                   \
  }                                                                                    \
  void __tsan_write##bytes(void* address) {                                            \
    check_alignment(address, std::min<size_t>(bytes, 8), __builtin_return_address(0)); \
    touch(address, bytes, Touch::write, __builtin_return_address(0));                  \
  }                                                                                    \
  void __tsan_unaligned_read##bytes(void* address) {                                   \
    touch(address, bytes, Touch::read, __builtin_return_address(0));                   \
  }                                                                                    \
  void __tsan_unaligned_write##bytes(void* address) {                                  \
    touch(address, bytes, Touch::write, __builtin_return_address(0));                  \
  }

extern "C" {

LOCKSTEP_HOOKS(1)
LOCKSTEP_HOOKS(2)
LOCKSTEP_HOOKS(4)
LOCKSTEP_HOOKS(8)
LOCKSTEP_HOOKS(16)

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// The compiler calls this function to copy vector types. A vector of 16 bytes must be aligned like uint4.
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  if (bytes == 16) {
    check_alignment(from, 16, __builtin_return_address(0));
    check_alignment(to, 16, __builtin_return_address(0));
  }
  if (bytes != 0) {
    touch(from, bytes, Touch::read, __builtin_return_address(0));
    touch(to, bytes, Touch::write, __builtin_return_address(0));
  }
  return std::memcpy(to, from, bytes);
}

void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  if (bytes != 0) {
    touch(from, bytes, Touch::read, __builtin_return_address(0));
    touch(to, bytes, Touch::write, __builtin_return_address(0));
  }
  return std::memmove(to, from, bytes);
}

void* __tsan_memset(void* to, int value, size_t bytes) {
  if (bytes != 0) touch(to, bytes, Touch::write, __builtin_return_address(0));
  return std::memset(to, value, bytes);
}

void __ubsan_handle_type_mismatch_v1(SourceLocation* location, void*) {
  report(*location, "misaligned: access");
}
void __ubsan_handle_alignment_assumption(SourceLocation* location, void*, void*, void*) {
  report(*location, "misaligned: access");
}
void __ubsan_handle_out_of_bounds(SourceLocation* location, void*) {
  report(*location, "out of bounds: index of an array");
}

}  // extern "C"
