// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/cross_entropy.h"

#include "kernels/values.h"
#include "support/cuda.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

constexpr int32_t ignored = -100;
constexpr double gradient_scale = 0.75;
constexpr double scale = 0.125;

struct Case {
  int64_t rows, classes;
  DType dtype;
  Numbers logits, targets, losses, dlogits;

  Case(int64_t row_count, int64_t class_count, DType type)
      : rows(row_count),
        classes(class_count),
        dtype(type),
        logits(normal_values(rows * classes, 1, dtype, 3.0)),
        losses(static_cast<size_t>(rows)),
        dlogits(logits.size()) {
    for (int64_t row = 0; row < rows; ++row) {
      const bool is_last = row % 3 == 0;
      targets.push_back(row % 5 == 2 ? ignored
                                     : static_cast<double>(is_last ? classes - 1 : (row * 7919) % classes));
      if (targets.back() != ignored) compute(static_cast<size_t>(row));
    }
  }

  /// Expects every loss within 1e-5. Expects every gradient within half a unit of the storage plus the
  /// exponential's error. That error is 2^-22 (1 + |argument|), with arguments down to -27. At the target,
  /// terms as large as the scale cancel.
  void expect_matches(const DeviceArray& actual_losses, const DeviceArray& actual_dlogits) const {
    const Numbers loss = actual_losses.values(), d = actual_dlogits.values();
    for (size_t row = 0; row < losses.size(); ++row)
      ASSERT_NEAR(loss[row], losses[row], 1e-5) << "row " << row;
    for (size_t i = 0; i < dlogits.size(); ++i) {
      const bool is_target =
          targets[i / static_cast<size_t>(classes)] == static_cast<double>(i % static_cast<size_t>(classes));
      ASSERT_NEAR(d[i], dlogits[i],
                  (epsilon_of(dtype) / 2 + 0x1p-17) * std::fabs(dlogits[i]) +
                      (is_target ? 0x1p-18 * scale * gradient_scale : 0.0) +
                      (dtype == DType::f16 ? 0x1p-25 : 0x1p-126))
          << "element " << i;
    }
  }

 private:
  void compute(size_t row) {
    const auto width = static_cast<size_t>(classes);
    const auto target = static_cast<size_t>(targets[row]);
    double sum = 0;
    for (size_t i = 0; i < width; ++i) sum += std::exp(logits[row * width + i]);
    losses[row] = std::log(sum) - logits[row * width + target];
    for (size_t i = 0; i < width; ++i)
      dlogits[row * width + i] =
          (std::exp(logits[row * width + i]) / sum - (i == target ? 1.0 : 0.0)) * scale * gradient_scale;
  }
};

struct Device {
  DeviceArray logits, targets, losses, dlogits;
  DeviceArray factor{{scale}, {1}, DType::f32};

  explicit Device(const Case& c)
      : logits(c.logits, {c.rows, c.classes}, c.dtype),
        targets(c.targets, {c.rows}, DType::i32),
        losses({c.rows}, DType::f32),
        dlogits({c.rows, c.classes}, c.dtype) {}

  CrossEntropy kernel() const {
    return {.logits = logits.view(),
            .targets = targets.view(),
            .losses = losses.view(),
            .dlogits = dlogits.view(),
            .scale = factor.view(),
            .ignore_index = ignored,
            .gradient_scale = gradient_scale};
  }
};

TEST(CrossEntropyOnGpu, LossAndGradientMatchReferenceInEverySchedule) {
  LOCKSTEP_NEEDS_GPU();
  // One warp per row, packed and ragged; one block per row in shared memory, packed and ragged.
  const std::pair<int64_t, int64_t> shapes[] = {{9, 1}, {11, 65}, {9, 1024}, {5, 2056}, {4, 5003}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [rows, classes] : shapes) {
      SCOPED_TRACE(concat(rows, " rows of ", classes, " ", dtype));
      const Case c(rows, classes, dtype);
      std::vector<uint8_t> bits;
      for_each_schedule([&] {
        const Device device(c);
        launch(gpu_stream(), device.kernel());
        c.expect_matches(device.losses, device.dlogits);
        if (!bits.empty()) {
          EXPECT_EQ(device.dlogits.bits(), bits);
        }
        bits = device.dlogits.bits();
        // Computes the losses alone, then the gradient in place.
        const std::vector<uint8_t> losses = device.losses.bits();
        CrossEntropy alone = device.kernel();
        alone.dlogits = {};
        launch(gpu_stream(), alone);
        EXPECT_EQ(device.losses.bits(), losses);
        CrossEntropy in_place = device.kernel();
        in_place.dlogits = in_place.logits;
        launch(gpu_stream(), in_place);
        EXPECT_EQ(device.logits.bits(), bits);
        EXPECT_EQ(device.losses.bits(), losses);
      });
    }
}

TEST(CrossEntropyOnGpu, VocabularyOfGptIsRead) {
  LOCKSTEP_NEEDS_GPU();
  // Shared memory does not hold two f32 rows, so f32 rows are read twice.
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t classes : {50257, 50304}) {
      SCOPED_TRACE(concat(classes, " classes of ", dtype));
      const Case c(2, classes, dtype);
      const Device device(c);
      launch(gpu_stream(), device.kernel());
      c.expect_matches(device.losses, device.dlogits);
    }
}

TEST(CrossEntropyOnGpu, WhereRowsBeginDoesNotShowInTheBits) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t classes : {65, 1024, 2051, 2056}) {
      const Case c(6, classes, dtype);
      const Device device(c);
      launch(gpu_stream(), device.kernel());
      // The rows after the first, one element past a multiple of 16 bytes. The gradient has another offset.
      const DeviceArray memory({6 * classes + 1}, dtype), gradient({5 * classes + 3}, dtype);
      const auto part = [&](const DeviceArray& array, int64_t first, const Shape& shape) {
        View view = array.view();
        view.data = static_cast<char*>(view.data) + first * bytes(view.dtype);
        view.shape = shape;
        return view;
      };
      CrossEntropy shifted = device.kernel();
      copy_bytes(part(memory, 1, {1}).data, gpu_stream(), shifted.logits.data, gpu_stream(),
                 shifted.logits.bytes());
      shifted.logits = part(memory, 1 + classes, {5, classes});
      shifted.targets = part(device.targets, 1, {5});
      const DeviceArray losses({5}, DType::f32);
      shifted.losses = losses.view();
      const Numbers expected = device.dlogits.values(), expected_losses = device.losses.values();
      for (const View& dlogits : {part(gradient, 3, {5, classes}), shifted.logits}) {
        shifted.dlogits = dlogits;
        launch(gpu_stream(), shifted);
        const Numbers all = (dlogits.data == shifted.logits.data ? memory : gradient).values();
        const int64_t first = dlogits.data == shifted.logits.data ? 1 + classes : 3;
        EXPECT_EQ(Numbers(all.begin() + first, all.begin() + first + 5 * classes),
                  Numbers(expected.begin() + classes, expected.end()));
        EXPECT_EQ(losses.values(), Numbers(expected_losses.begin() + 1, expected_losses.end()));
      }
    }
}

TEST(CrossEntropyOnGpu, WrongTargetsGiveNanAndReadNothing) {
  LOCKSTEP_NEEDS_GPU();
  for (const int64_t classes : {65, 2056, 3001}) {
    Case c(4, classes, DType::bf16);
    c.targets = {1, static_cast<double>(classes), -7, 2e9};
    const Device device(c);
    launch(gpu_stream(), device.kernel());
    const Numbers losses = device.losses.values(), d = device.dlogits.values();
    for (size_t i = 0; i < d.size(); ++i)
      ASSERT_EQ(std::isnan(d[i]), i >= static_cast<size_t>(classes)) << "element " << i;
    for (size_t row = 0; row < 4; ++row) EXPECT_EQ(std::isnan(losses[row]), row > 0);
  }
}

TEST(CrossEntropyOnGpu, HugeLogitsStayFiniteAndNanIsSeen) {
  LOCKSTEP_NEEDS_GPU();
  const DeviceArray logits({1e30, -1e30, -1e30, 1, NAN, 2}, {2, 3}, DType::f32);
  const DeviceArray targets({0, 0}, {2}, DType::i32), losses({2}, DType::f32), dlogits({2, 3}, DType::f32);
  launch(gpu_stream(), CrossEntropy{.logits = logits.view(),
                                    .targets = targets.view(),
                                    .losses = losses.view(),
                                    .dlogits = dlogits.view()});
  EXPECT_EQ(losses.values()[0], 0.0);
  EXPECT_TRUE(std::isnan(losses.values()[1]));
  const Numbers d = dlogits.values();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(d[i], 0.0);
  EXPECT_TRUE(std::isnan(d[3]));
}

TEST(InverseCountOnGpu, IsTheCpus) {
  LOCKSTEP_NEEDS_GPU();
  for (const int64_t size : {1, 77, 5000})
    for (const DType dtype : {DType::f32, DType::f64}) {
      Values targets({size}, DType::i32), y({1}, dtype);
      Numbers values;
      for (int64_t i = 0; i < size; ++i) targets.set(i, i % 3 == 1 ? -1 : static_cast<double>(i % 100));
      for (int64_t i = 0; i < size; ++i) values.push_back(targets[i]);
      launch_on(1, InverseCount{.targets = targets.view(), .ignore_index = -1, .y = y.view()});
      for_each_schedule([&] {
        const DeviceArray device_targets(values, {size}, DType::i32), device_y({1}, dtype);
        launch(gpu_stream(),
               InverseCount{.targets = device_targets.view(), .ignore_index = -1, .y = device_y.view()});
        EXPECT_EQ(device_y.values()[0], y[0]);
      });
    }
  const DeviceArray none({-1, -1}, {2}, DType::i32), y({1}, DType::f32);
  launch(gpu_stream(), InverseCount{.targets = none.view(), .ignore_index = -1, .y = y.view()});
  EXPECT_EQ(y.values()[0], 0.0);
}

}  // namespace
}  // namespace lockstep::testing
