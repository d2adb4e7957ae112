// SPDX-License-Identifier: Apache-2.0
#include "emulator/fiber.h"

#include <cstdint>
#include <cstring>
#include <sys/mman.h>

#include "lockstep/core/error.h"

#if !defined(__x86_64__)
#error \
    "The emulator switches between fibers in x86-64 assembly; another processor needs its own emulator_switch."
#endif

// Saves only the callee-saved registers of the calling convention. Kernels change neither the rounding mode
// nor the signal mask.
asm(R"(
.text
.globl emulator_switch
.type emulator_switch, @function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch, . - emulator_switch
)");

namespace emulator {
namespace {

constexpr size_t page = 4096;
constexpr size_t stack_bytes = 128 * 1024;
// Stacks begin at different offsets in a page. With equal offsets they would compete for the same few cache
// lines.
constexpr size_t stagger_bytes = 320;
constexpr int staggers = 64;

}  // namespace

Stacks::Stacks(int count) : size_(static_cast<size_t>(count) * stack_bytes) {
  void* memory =
      mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  lockstep::expect(memory != MAP_FAILED, "emulator: no memory for the stacks of ", count, " threads");
  memory_ = static_cast<std::byte*>(memory);
  for (int i = 0; i < count; ++i) mprotect(memory_ + static_cast<size_t>(i) * stack_bytes, page, PROT_NONE);
}

Stacks::~Stacks() { munmap(memory_, size_); }

void* Stacks::prepare(int fiber, void (*entry)()) const {
  constexpr int kept_registers = 6;
  // Above the registers are two return addresses: the switch returns to the first, `entry` to the second
  // (null).
  auto* top = reinterpret_cast<void**>(memory_ + static_cast<size_t>(fiber + 1) * stack_bytes -
                                       static_cast<size_t>(fiber % staggers) * stagger_bytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kept_registers; ++i) *--top = nullptr;
  return top;
}

}  // namespace emulator
