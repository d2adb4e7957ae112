// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector_types.h>

// The emulator's functions for one thread of a kernel. The shadow headers call them.

namespace emulator {

/// The source line at which a thread waits for others.
struct Site {
  const char* file;
  int line;
};

// A thread's position in its grid never changes, so the compiler may cache these values.
[[gnu::const]] uint3 thread_index() noexcept;
[[gnu::const]] uint3 block_index() noexcept;
[[gnu::const]] dim3 block_dimensions() noexcept;
[[gnu::const]] dim3 grid_dimensions() noexcept;

void* shared_memory();

/// Waits for all threads of the block that have not exited. Returns the number of threads with a true
/// predicate.
int block_barrier(const char* operation, bool predicate, Site site);

void warp_barrier(uint32_t mask, Site site);

/// Returns the bits that lane `source` of the warp passed.
uint64_t shuffle(const char* operation, uint32_t mask, uint64_t bits, int source, Site site);

/// Returns the lanes of the mask with a true predicate.
uint32_t ballot(const char* operation, uint32_t mask, bool predicate, Site site);

int lane();

void copy_asynchronously(void* shared, const void* global, bool valid);
void close_copy_group();
void wait_for_copy_groups(int pending);

/// Loads four matrices. `row` is the row that this lane provides.
void load_matrices(uint32_t (&matrices)[4], const void* row, bool transposed, Site site);

enum class Half { bf16, f16 };
void multiply_matrices(Half type, float* c, const uint32_t* a, const uint32_t* b, Site site);

/// Reports the access of an atomic operation to the race checker.
void touch_atomically(void* address, size_t bytes);

}  // namespace emulator
