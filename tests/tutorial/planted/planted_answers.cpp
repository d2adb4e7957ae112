// SPDX-License-Identifier: Apache-2.0
// All wrong answers that planted_answers.cmake has made, in one program: planted_answers N [arguments of N].
#include <iterator>
#include <string>

#include "apps/tutorial/exercises/exercise.h"
#include "data/sampler.h"
#include PLANTED_PROGRAMS

int main(int argc, char** argv) {
  const size_t number = argc > 1 ? std::stoul(argv[1]) : std::size(programs);
  return number < std::size(programs) ? programs[number](argc - 1, argv + 1) : 2;
}
