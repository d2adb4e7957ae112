// SPDX-License-Identifier: Apache-2.0

// Prints a line for every kernel of the CPU, dtype and some ragged shapes, with a hash of the results. Builds
// for different processors, by different compilers, must print the same text.

#include "kernels/bits/numbers.h"

int main() {
  lockstep::bits::print_products();
  lockstep::bits::print_attention();
  lockstep::bits::print_rows();
  lockstep::bits::print_elements();
}
