// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/fold.h"

#include "kernels/cuda/on_gpu.h"

namespace lockstep::testing {
namespace {

void append_tree(int begin, int end, std::vector<int>& program) {
  if (end - begin == 1) return program.push_back(begin);
  const int middle = begin + (end - begin) / 2;
  append_tree(begin, middle, program);
  append_tree(middle, end, program);
  program.push_back(Fold::add);
}

/// Returns the deepest program: all inputs, then all additions.
std::vector<int> deep_program(int count) {
  std::vector<int> program;
  for (int input = 0; input < count; ++input) program.push_back(input);
  program.resize(program.size() + static_cast<size_t>(count) - 1, Fold::add);
  return program;
}

/// Compares one fold on the CPU and the GPU. The GPU's result overwrites input `target` unless that is
/// negative.
void expect_bits_of_the_cpu(int count, int64_t size, int64_t shift, const std::vector<int>& program,
                            int target = -1) {
  std::vector<Values> inputs;
  std::vector<OnGpu> on_gpu;
  Fold cpu{.inputs = {}, .program = program, .y = {}, .scale = 0.3f}, gpu = cpu;
  for (int input = 0; input < count; ++input) {
    inputs.push_back(Values::uniform({size}, DType::f32, static_cast<uint64_t>(input)));
    // One unaligned input is enough.
    on_gpu.emplace_back(inputs.back(), input == count / 2 ? shift : 0);
  }
  for (int input = 0; input < count; ++input) {
    cpu.inputs.push_back(inputs[static_cast<size_t>(input)].view());
    gpu.inputs.push_back(on_gpu[static_cast<size_t>(input)].view());
  }
  Values expected({size});
  OnGpu fresh = OnGpu::poisoned({size}, DType::f32);
  OnGpu& y = target < 0 ? fresh : on_gpu[static_cast<size_t>(target)];
  cpu.y = expected.view();
  gpu.y = y.view();
  launch_on(1, cpu);
  launch(gpu_stream(), gpu);
  EXPECT_TRUE(y.values() == expected) << count << " inputs of " << size << ", shift " << shift;
}

TEST(FoldOnGpu, HasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for_each_schedule([] {
    for (const int count : {1, 2, 3, 8, 13, 64, 70})
      for (const int64_t size : {1, 7, 512, 2051})
        for (const int64_t shift : {0, 1}) {
          std::vector<int> program;
          append_tree(0, count, program);
          expect_bits_of_the_cpu(count, size, shift, program);
        }
  });
}

TEST(FoldOnGpu, MayOverwriteAnInput) {
  LOCKSTEP_NEEDS_GPU();
  for_each_schedule([] {
    for (const int target : {0, 3, 4})
      expect_bits_of_the_cpu(5, 2051, 0, {0, 1, -1, 2, 3, -1, -1, 4, -1}, target);
  });
}

TEST(FoldOnGpu, DeepProgramsWorkUpToALimit) {
  LOCKSTEP_NEEDS_GPU();
  expect_bits_of_the_cpu(24, 600, 0, deep_program(24));
  EXPECT_THROW(expect_bits_of_the_cpu(25, 600, 0, deep_program(25)), Error);
}

}  // namespace
}  // namespace lockstep::testing
