// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/adamw.h"

#include "kernels/cuda/on_gpu.h"
#include "lockstep/core/graph.h"

namespace lockstep::testing {
namespace {

/// A parameter with its gradient, moments and copy, on the CPU or (as OnGpu) on a GPU.
template <class Array>
struct Parameter {
  Array value, gradient, first, second, copy;
  double weight_decay;
  bool has_copy;

  AdamWSlice slice() {
    return {.parameter = value.view(),
            .gradient = gradient.view(),
            .first_moment = first.view(),
            .second_moment = second.view(),
            .weight_decay = weight_decay,
            .learning_rate_factor = weight_decay > 0.0 ? 0.3 : 1.0,
            .compute_copy = has_copy ? copy.view() : View{}};
  }
};

struct Case {
  int64_t size;
  DType copy_dtype = DType::f64;  ///< f64 means no copy
  int64_t shift = 0;
};

/// Aligned and unaligned memory, with and without remainders, one and several tiles of 4096, copies in every
/// dtype.
const std::vector<Case> cases{{1},
                              {7},
                              {0},
                              {4096, DType::bf16},
                              {9001, DType::f16},
                              {65, DType::f32, 1},
                              {4100, DType::bf16, 3},
                              {4301, DType::f64, 1}};

Parameter<Values> make_parameter(const Case& c, uint32_t site) {
  const Shape shape{c.size};
  const DType copy_dtype = c.copy_dtype == DType::f64 ? DType::f32 : c.copy_dtype;
  return {Values::uniform(shape, DType::f32, site),
          Values::uniform(shape, DType::f32, site + 100),
          Values::uniform(shape, DType::f32, site + 200),
          Values::uniform(shape, DType::f32, site + 300, 0.0, 2.0),
          Values(shape, copy_dtype),
          site % 2 ? 0.1 : 0.0,
          c.copy_dtype != DType::f64};
}

/// The same parameters on the CPU and on the GPU.
struct Pair {
  std::vector<Parameter<Values>> cpu;
  std::vector<Parameter<OnGpu>> gpu;

  explicit Pair(const std::vector<Case>& of) {
    for (const Case& c : of) {
      const Parameter<Values> p = make_parameter(c, static_cast<uint32_t>(cpu.size()));
      cpu.push_back(p);
      gpu.push_back({OnGpu(p.value, c.shift), OnGpu(p.gradient, c.shift), OnGpu(p.first, c.shift),
                     OnGpu(p.second, c.shift), OnGpu::poisoned(p.copy.shape(), Values(p.copy).view().dtype),
                     p.weight_decay, p.has_copy});
    }
  }

  void launch_both(AdamWStep k) {
    for (auto& parameter : cpu) k.slices.push_back(parameter.slice());
    launch_on(1, k);
    k.slices.clear();
    for (auto& parameter : gpu) k.slices.push_back(parameter.slice());
    launch(gpu_stream(), k);
  }

  void expect_equal_bits() {
    for (size_t i = 0; i < cpu.size(); ++i) {
      EXPECT_TRUE(gpu[i].value.values() == cpu[i].value) << i;
      EXPECT_TRUE(gpu[i].first.values() == cpu[i].first) << i;
      EXPECT_TRUE(gpu[i].second.values() == cpu[i].second) << i;
      if (cpu[i].has_copy) {
        EXPECT_TRUE(gpu[i].copy.values() == cpu[i].copy) << i;
      }
    }
  }
};

AdamWStep options(int64_t step) {
  return {.slices = {}, .learning_rate = 0.013, .step = step, .gradient_scale = 0.7f};
}

TEST(AdamWOnGpu, HasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for_each_schedule([&] {
    Pair pair(cases);
    for (const int64_t step : {1, 2, 1000}) {
      pair.launch_both(options(step));
      pair.expect_equal_bits();
    }
  });
}

TEST(AdamWOnGpu, MoreSegmentsThanATableHolds) {
  LOCKSTEP_NEEDS_GPU();
  Pair pair(std::vector<Case>(805, Case{3}));
  pair.launch_both(options(1));
  pair.expect_equal_bits();
}

TEST(AdamWOnGpu, NothingChangesIfTheClipFactorIsNotFinite) {
  LOCKSTEP_NEEDS_GPU();
  for (const double factor : {std::nan(""), HUGE_VAL}) {
    Pair pair({{9001, DType::bf16}});
    Values clip({});
    clip.set(0, factor);
    OnGpu clip_on_gpu(clip);
    AdamWStep k = options(1);
    k.clip = clip_on_gpu.view();
    k.slices = {pair.gpu[0].slice()};
    launch(gpu_stream(), k);
    std::memset(pair.cpu[0].copy.view().data, 0xff, 2 * 9001);
    pair.expect_equal_bits();
  }
}

/// A recorded step reads its changing values from device memory.
TEST(AdamWOnGpu, ReplaysReadScheduleAndClip) {
  LOCKSTEP_NEEDS_GPU();
  for_each_schedule([] {
    Pair pair({{4100, DType::f16}, {4301}});
    OnGpu schedule(Values({3}, DType::f64)), clip(Values({}));
    AdamWStep k = options(1);
    for (auto& parameter : pair.gpu) k.slices.push_back(parameter.slice());
    k.schedule = schedule.view();
    k.clip = clip.view();
    const Graph graph(gpu_stream(), [&] { launch(gpu_stream(), k); });
    for (const int64_t t : {1, 2, 3}) {
      AdamWStep expected = options(t);
      expected.learning_rate /= static_cast<double>(t);
      auto numbers = adamw_schedule(expected.learning_rate, expected.beta1, expected.beta2, t);
      float factor = 1.0f / static_cast<float>(t);
      copy_bytes(schedule.view().data, gpu_stream(), numbers.data(), cpu_stream(), sizeof(numbers));
      copy_bytes(clip.view().data, gpu_stream(), &factor, cpu_stream(), sizeof(factor));
      graph.launch();
      expected.clip = {.data = &factor, .shape = {}, .dtype = DType::f32};
      for (auto& parameter : pair.cpu) expected.slices.push_back(parameter.slice());
      launch_on(1, expected);
      pair.expect_equal_bits();
    }
  });
}

TEST(AdamWOnGpu, F64IsForTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  OnGpu array(Values({3}, DType::f64));
  AdamWStep k = options(1);
  k.slices = {{array.view(), array.view(), array.view(), array.view()}};
  EXPECT_THROW(launch(gpu_stream(), k), Error);
}

}  // namespace
}  // namespace lockstep::testing
