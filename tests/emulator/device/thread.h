// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector_types.h>

// What the shadow headers call: one thread of a kernel speaks to the emulator.

namespace emulator {

/// A line of a kernel that waits for others.
struct Site {
  const char* file;
  int line;
};

// A thread has one place in its grid for as long as it runs, so the compiler may remember these.
[[gnu::const]] uint3 thread_index() noexcept;
[[gnu::const]] uint3 block_index() noexcept;
[[gnu::const]] dim3 block_dimensions() noexcept;
[[gnu::const]] dim3 grid_dimensions() noexcept;

void* shared_memory();

/// Waits for all threads of the block that have not exited; returns for how many the predicate held.
int block_barrier(const char* operation, bool predicate, Site site);

void warp_barrier(uint32_t mask, Site site);

/// The bits that lane `source` of the warp gave.
uint64_t shuffle(const char* operation, uint32_t mask, uint64_t bits, int source, Site site);

/// The lanes of the mask whose predicate holds.
uint32_t ballot(const char* operation, uint32_t mask, bool predicate, Site site);

int lane();

void copy_asynchronously(void* shared, const void* global, bool valid);
void close_copy_group();
void wait_for_copy_groups(int pending);

/// Reads four matrices; the row is this lane's.
void load_matrices(uint32_t (&matrices)[4], const void* row, bool transposed, Site site);

enum class Half { bf16, f16 };
void multiply_matrices(Half type, float* c, const uint32_t* a, const uint32_t* b, Site site);

/// Reports an access of an atomic operation to the race checker.
void touch_atomically(void* address, size_t bytes);

}  // namespace emulator
