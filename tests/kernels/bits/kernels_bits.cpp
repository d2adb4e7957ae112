// SPDX-License-Identifier: Apache-2.0

// Prints a line for every kernel of the CPU and dtype and for some ragged shapes. A line has a hash of the
// results. Builds for different processors and from different compilers must print the same text.

#include "kernels/bits/numbers.h"

int main() {
  lockstep::bits::print_products();
  lockstep::bits::print_attention();
  lockstep::bits::print_rows();
  lockstep::bits::print_elements();
}
