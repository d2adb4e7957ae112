// SPDX-License-Identifier: Apache-2.0
// Linked into every program under AddressSanitizer: Open MPI's plugins stay where they were opened, so that a
// few frames of a leak's call stack name the one it came from (lsan.suppressions). Taking them away at the
// end frees nothing that matters, and finding deeper frames at every allocation took most of the time of
// tests that start ranks.

extern "C" int dlclose(void*) noexcept { return 0; }
