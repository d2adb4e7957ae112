// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "emulator/checker.h"
#include "emulator/device/thread.h"
#include "emulator/emulator.h"
#include "emulator/fiber.h"

namespace emulator {

inline constexpr int most_threads = 1024;
inline constexpr int warp_size = 32;
inline constexpr size_t most_shared_bytes = 227 * 1024;

struct Block;
struct Warp;

/// The block that this host thread runs. It is null outside kernels.
extern thread_local Block* running_block;

/// The block whose accesses are checked. It is null while the emulator's own code runs: the linker may give
/// that code the kernels' copies of standard library functions, which contain hooks.
extern thread_local Block* watched_block;
inline void stop_watching() { watched_block = nullptr; }

/// An operation that all lanes of a mask perform together.
struct WarpOperation {
  bool tolerates_exited;  ///< true if lanes of the mask may have exited
  bool orders_memory;
  /// Reads and writes the lanes' operands. Runs once, after all lanes have arrived.
  void (*complete)(Warp& warp, uint32_t mask);
};

/// A cp.async in progress: 16 bytes that will be copied to shared memory.
struct AsyncCopy {
  void* to;
  const void* from;
  bool valid;
};

/// A closed group of a thread's copies: the copies before `end` that are in no older group. It is a type of
/// its own so that the functions of its std::vector are the emulator's own.
struct CopyGroup {
  size_t end;
};

/// A CUDA thread, which runs as a fiber.
struct Thread {
  enum class Waits : uint8_t { no, for_block, for_warp, gone };

  void* stack_pointer = nullptr;
  Warp* warp = nullptr;
  uint3 index = {};
  int number = 0;
  int lane = 0;
  Waits waits = Waits::no;
  const char* operation = "";
  Site site = {};
  uint32_t mask = 0;
  const WarpOperation* warp_operation = nullptr;
  void* operand = nullptr;
  bool predicate = false;
  int result = 0;
  std::vector<AsyncCopy> copies;
  std::vector<CopyGroup> copy_groups;
};

struct Warp {
  Thread* lanes = nullptr;
  uint32_t present = 0;  ///< mask of lanes that exist and have not exited
  uint32_t waiting = 0;  ///< mask of lanes that wait for other lanes of the warp
  WarpClock clock;
};

/// The state of the block that a host thread runs.
struct Block {
  Block();

  const Launch* launch = nullptr;
  uint3 index = {};
  int alive = 0;
  int waiting = 0;
  Thread* running = nullptr;
  void* host_stack_pointer = nullptr;
  std::string failure;
  std::exception_ptr exception;
  uint32_t random = 0;  ///< random state of the schedule; 0 runs threads in order
  Stacks stacks;
  SharedMemory shared;
  Epochs epochs;
  std::array<Thread, most_threads> threads;
  std::array<Warp, most_threads / warp_size> warps;

  void run(const Launch& grid, uint3 at);
  /// Waits for the lanes of the mask. All of them must call it with the same operation and mask. `name` is
  /// the operation's name in error messages.
  void meet(const WarpOperation& operation, const char* name, uint32_t mask, void* operand, Site site);
  int wait_for_block(const char* operation, bool predicate, Site site);
  /// Ends the launch with the error message text(). Must be called on a fiber.
  template <class Text>
  [[noreturn]] void fail(Text&& text) {
    stop_watching();
    fail_with(text());
  }

 private:
  static void enter();
  [[noreturn]] void fail_with(const std::string& what);
  void start_threads();
  void exit_thread();
  void complete_barrier();
  bool can_complete(Warp& warp, const WarpOperation& operation, uint32_t mask);
  void complete(Warp& warp, const WarpOperation& operation, uint32_t mask);
  void check_lanes(const Warp& warp, const WarpOperation& operation, uint32_t mask);
  void make_ready(Thread& thread);
  Thread* next_ready();
  void give_way();
  [[noreturn]] void leave();
  std::string describe_deadlock() const;

  std::array<uint16_t, most_threads> ready_ = {};
  int first_ready_ = 0;
  int ready_count_ = 0;
};

/// Returns, for example, "block (1, 0, 0) thread 5".
std::string describe(uint3 block, int thread);
/// Returns, for example, "kernel name, block (1, 0, 0) thread 5". Error messages end with it.
std::string describe_running();
std::string describe(Site site);

/// The mangled name of a function, and the file that it was compiled from.
struct Symbol {
  std::string name;
  std::string file;
};

/// Returns the symbol of a function of this program. Throws Error if there is none.
Symbol symbol_of(const void* address);

}  // namespace emulator
