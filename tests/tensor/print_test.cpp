// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/print.h"

#include <gtest/gtest.h>
#include <limits>

#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

Tensor floats(const std::vector<float>& values, const Shape& shape) { return from_values(values, shape); }

TEST(Print, AlignsRowsAndNamesDtypeAndShape) {
  EXPECT_EQ(concat(floats({1, -20, 3, 4, 5, 6}, {2, 3})), "[[  1, -20,   3],\n [  4,   5,   6]] f32 [2, 3]");
  EXPECT_EQ(concat(floats({0.5f, -2, 3.25f}, {3})), "[ 0.5000, -2.0000,  3.2500] f32 [3]");
  EXPECT_EQ(concat(full({}, 2.5, DType::f64)), "2.5000 f64 []");
  EXPECT_EQ(concat(full({2}, 7.0, DType::i32)), "[7, 7] i32 [2]");
  EXPECT_EQ(concat(convert(floats({1.5f}, {1}), DType::bf16)), "[1.5000] bf16 [1]");
}

TEST(Print, NestsDimensions) {
  EXPECT_EQ(concat(floats({1, 2, 3, 4}, {2, 1, 2})), "[[[1, 2]],\n [[3, 4]]] f32 [2, 1, 2]");
}

TEST(Print, UsesExponentsForVeryDifferentNumbers) {
  EXPECT_EQ(concat(floats({0.5f, 4096}, {2})), "[5.0000e-01, 4.0960e+03] f32 [2]");
  EXPECT_EQ(concat(floats({1e-5f}, {1})), "[1.0000e-05] f32 [1]");
  EXPECT_EQ(concat(floats({1e9f}, {1})), "[1.0000e+09] f32 [1]");
}

TEST(Print, ShowsNumbersThatAreNotFinite) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(concat(floats({infinity, -infinity, 1}, {3})), "[ inf, -inf,    1] f32 [3]");
  EXPECT_EQ(concat(sqrt(full({1}, -1.0))), "[nan] f32 [1]");
}

TEST(Print, LeavesOutTheMiddleOfALargeTensor) {
  const Tensor x = zeros({100, 50});
  x.data<float>()[99 * 50 + 49] = 8;
  const std::string text = concat(x);
  EXPECT_TRUE(text.starts_with("[[0, 0, 0, ..., 0, 0, 0],\n [0, 0, 0, ..., 0, 0, 0],\n")) << text;
  EXPECT_TRUE(
      text.ends_with(",\n ...,\n [0, 0, 0, ..., 0, 0, 0],\n [0, 0, 0, ..., 0, 0, 0],\n "
                     "[0, 0, 0, ..., 0, 0, 8]] f32 [100, 50]"))
      << text;
}

TEST(Print, BreaksLongRows) {
  const std::string text = concat(full({60}, 0.5, DType::f32));
  EXPECT_EQ(std::ranges::count(text, '\n'), 6);
  EXPECT_LE(text.find('\n'), 80U);
}

TEST(Print, TakesTensorsWithoutElements) {
  EXPECT_EQ(concat(zeros({0})), "[] f32 [0]");
  EXPECT_EQ(concat(zeros({2, 0})), "[[],\n []] f32 [2, 0]");
  EXPECT_EQ(concat(Tensor()), "an empty tensor");
}

}  // namespace
}  // namespace lockstep
