// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/swiglu.h"

#include "kernels/values.h"
#include "support/cuda.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

/// The operands of one case on the host, and the expected results in double.
struct Reference {
  Numbers gate, up, dy, y, dgate, dup;

  Reference(int64_t size, DType dtype)
      : gate(normal_values(size, 1, dtype, 4.0)),
        up(normal_values(size, 2, dtype)),
        dy(normal_values(size, 3, dtype)) {
    for (size_t i = 0; i < gate.size(); ++i) {
      const double sigmoid = 1.0 / (1.0 + std::exp(-gate[i]));
      y.push_back(gate[i] * sigmoid * up[i]);
      dgate.push_back(dy[i] * up[i] * (sigmoid + gate[i] * sigmoid * (1.0 - sigmoid)));
      dup.push_back(dy[i] * gate[i] * sigmoid);
    }
  }
};

/// Expects every element within half a unit of the storage plus the error of the instructions. The
/// exponential errs by 2^-22 (1 + |gate|). The sigmoid, times the gate, is below 0.3 where that matters. So
/// the error is about 2^-21 of the other factors, and 2^-20 of the result. f16 has no numbers between
/// multiples of 2^-24.
void expect_near(const DeviceArray& actual, const Numbers& expected, DType dtype,
                 const std::function<double(size_t)>& factors) {
  const Numbers values = actual.values();
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(values[i], expected[i],
                (epsilon_of(dtype) / 2 + 0x1p-20) * std::fabs(expected[i]) + 0x1p-21 * std::fabs(factors(i)) +
                    0x1p-25)
        << "element " << i << " of " << dtype;
}

TEST(SwigluOnGpu, MatchesReferenceInEverySchedule) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t size : {1, 515, 8192}) {
      const Reference r(size, dtype);
      const DeviceArray gate(r.gate, {size}, dtype), up(r.up, {size}, dtype), dy(r.dy, {size}, dtype);
      std::vector<uint8_t> bits;
      for_each_schedule([&] {
        const DeviceArray y({size}, dtype), dgate({size}, dtype), dup({size}, dtype);
        launch(gpu_stream(), SwigluForward{.gate = gate.view(), .up = up.view(), .y = y.view()});
        launch(gpu_stream(), SwigluBackward{.gate = gate.view(),
                                            .up = up.view(),
                                            .dy = dy.view(),
                                            .dgate = dgate.view(),
                                            .dup = dup.view()});
        expect_near(y, r.y, dtype, [&](size_t i) { return r.up[i]; });
        expect_near(dgate, r.dgate, dtype, [&](size_t i) { return r.dy[i] * r.up[i]; });
        expect_near(dup, r.dup, dtype, [&](size_t i) { return r.dy[i]; });
        std::vector<uint8_t> all;
        for (const DeviceArray* array : {&y, &dgate, &dup}) {
          const auto part = array->bits();
          all.insert(all.end(), part.begin(), part.end());
        }
        if (!bits.empty()) {
          EXPECT_EQ(all, bits);
        }
        bits = all;
      });
    }
}

/// Returns elements [1, 1 + size) of an array, which do not begin at a multiple of 16 bytes.
View shifted(const DeviceArray& array, int64_t size) { return part_of(array.view(), 1, size); }

TEST(SwigluOnGpu, AlignmentAndAliasesDoNotShowInTheBits) {
  LOCKSTEP_NEEDS_GPU();
  constexpr int64_t size = 1030;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Reference r(size, dtype);
    const DeviceArray gate(r.gate, {size}, dtype), up(r.up, {size}, dtype), dy(r.dy, {size}, dtype);
    const DeviceArray y({size}, dtype), dgate({size}, dtype), dup({size}, dtype);
    launch(gpu_stream(), SwigluForward{.gate = gate.view(), .up = up.view(), .y = y.view()});
    launch(
        gpu_stream(),
        SwigluBackward{
            .gate = gate.view(), .up = up.view(), .dy = dy.view(), .dgate = dgate.view(), .dup = dup.view()});
    const auto moved = [&](const DeviceArray& array) {
      DeviceArray memory({size + 1}, dtype);
      const View view = shifted(memory, size);
      copy_bytes(view.data, gpu_stream(), array.view().data, gpu_stream(), view.bytes());
      return memory;
    };
    const auto bits = [&](const View& view) {
      const DeviceArray copy({size}, dtype);
      copy_bytes(copy.view().data, gpu_stream(), view.data, gpu_stream(), view.bytes());
      return copy.bits();
    };
    const DeviceArray other_gate = moved(gate), other_up = moved(up), other_dy = moved(dy);
    const View g = shifted(other_gate, size), u = shifted(other_up, size), d = shifted(other_dy, size);
    const DeviceArray other_y({size + 1}, dtype);
    launch(gpu_stream(), SwigluForward{.gate = g, .up = u, .y = shifted(other_y, size)});
    EXPECT_EQ(bits(shifted(other_y, size)), y.bits());
    launch(gpu_stream(), SwigluBackward{.gate = g, .up = u, .dy = d, .dgate = d, .dup = u});
    EXPECT_EQ(bits(d), dgate.bits());
    EXPECT_EQ(bits(u), dup.bits());
    launch(gpu_stream(), SwigluForward{.gate = gate.view(), .up = up.view(), .y = up.view()});
    EXPECT_EQ(up.bits(), y.bits());
  }
}

TEST(SwigluOnGpu, FarFromZeroTheGateIsOpenOrClosed) {
  LOCKSTEP_NEEDS_GPU();
  const DeviceArray gate({200.0, -200.0, 1e4, 0.0}, {4}, DType::f32), up({3, 3, -1, 5}, {4}, DType::f32);
  const DeviceArray dy({2, 2, 2, 2}, {4}, DType::f32), y({4}, DType::f32);
  const DeviceArray dgate({4}, DType::f32), dup({4}, DType::f32);
  launch(gpu_stream(), SwigluForward{.gate = gate.view(), .up = up.view(), .y = y.view()});
  EXPECT_EQ(y.values(), (Numbers{600.0, 0.0, -1e4, 0.0}));
  launch(
      gpu_stream(),
      SwigluBackward{
          .gate = gate.view(), .up = up.view(), .dy = dy.view(), .dgate = dgate.view(), .dup = dup.view()});
  EXPECT_EQ(dgate.values(), (Numbers{6.0, 0.0, -2.0, 5.0}));
  EXPECT_EQ(dup.values(), (Numbers{400.0, 0.0, 2e4, 0.0}));
}

}  // namespace
}  // namespace lockstep::testing
