// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/attention.h"

#include <array>

#include "kernels/expectations.h"
#include "lockstep/kernels/matmul.h"

namespace lockstep::testing {
namespace {

struct AttentionCase {
  int64_t batch, time, heads, size;
  double dropout = 0;
  int64_t key_heads = 0;  ///< 0: as many as heads

  AttentionHeads all_heads() const { return {heads, key_heads > 0 ? key_heads : heads}; }
  int64_t packed_columns() const { return all_heads().packed() * size; }
};

// Lengths of one token, less than a tile, whole tiles, one token more than whole tiles, and several blocks of
// keys. Two and all query heads for one head of keys.
const std::vector<AttentionCase> attention_cases = {
    {1, 1, 1, 8},         {2, 1, 3, 5, 0.5},    {2, 7, 2, 8},        {1, 32, 2, 32},
    {2, 33, 2, 32},       {1, 64, 1, 64, 0.2},  {2, 37, 3, 80, 0.1}, {1, 100, 2, 16, 0.3},
    {1, 300, 1, 64},      {1, 270, 2, 13, 0.1}, {1, 48, 1, 128},     {2, 37, 4, 24, 0.2, 2},
    {1, 70, 4, 16, 0, 1}, {1, 3, 6, 5, 0.3, 2}};

constexpr RandomKey random_key{.seed = 0x123456789abcdefull, .step = 7, .sample = 41, .site = 3};

struct Attention {
  Attention(const AttentionCase& c, DType in)
      : shape(c),
        dtype(in),
        qkv(Values::uniform({c.batch, c.time, c.packed_columns()}, dtype, 1, -1.0, 1.0)),
        dy(Values::uniform({c.batch, c.time, c.heads * c.size}, dtype, 2, -1.0, 1.0)),
        y(dy.shape(), dtype),
        log_sum_exp({c.batch, c.heads, c.time}, accumulator_dtype(dtype)),
        dqkv(qkv.shape(), dtype) {}

  CausalAttentionForward forward() {
    return {.qkv = unpack_heads(qkv.view(), shape.all_heads()),
            .y = y.view(),
            .log_sum_exp = log_sum_exp.view(),
            .heads = shape.all_heads(),
            .dropout = shape.dropout,
            .key = key};
  }
  CausalAttentionBackward backward() {
    return {.qkv = unpack_heads(qkv.view(), shape.all_heads()),
            .y = y.view(),
            .log_sum_exp = log_sum_exp.view(),
            .dy = dy.view(),
            .dqkv = unpack_heads(dqkv.view(), shape.all_heads()),
            .heads = shape.all_heads(),
            .dropout = shape.dropout,
            .key = key};
  }
  void run(int threads = 1) {
    launch_on(threads, forward());
    launch_on(threads, backward());
  }

  /// Returns column d of a query head's query (part 0), key (part 1) or value (part 2).
  double at(int part, int64_t sample, int64_t head, int64_t row, int64_t d) const {
    const AttentionHeads heads = shape.all_heads();
    const int64_t key_head = shape.heads + (part - 1) * heads.keys + head / heads.group();
    return qkv[((sample * shape.time + row) * heads.packed() + (part == 0 ? head : key_head)) * shape.size +
               d];
  }

  AttentionCase shape;
  DType dtype;
  RandomKey key = random_key;
  Values qkv, dy, y, log_sum_exp, dqkv;
};

/// Philox4x32-7 (Salmon et al. 2011), written from the paper's figure.
std::array<uint32_t, 4> seven_rounds(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  for (uint64_t round = 0; round < 7; ++round) {
    const auto k0 = static_cast<uint32_t>((key & 0xffffffffu) + round * 0x9E3779B9u);
    const auto k1 = static_cast<uint32_t>((key >> 32) + round * 0xBB67AE85u);
    const uint64_t p0 = static_cast<uint64_t>(c0) * 0xD2511F53u, p1 = static_cast<uint64_t>(c2) * 0xCD9E8D57u;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1 & 0xffffffffu);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0 & 0xffffffffu);
  }
  return {c0, c1, c2, c3};
}

bool kept(const Attention& o, int64_t sample, int64_t head, int64_t row, int64_t column) {
  const auto words = seven_rounds(derive_key(o.key.seed, o.key.site, static_cast<uint32_t>(head)),
                                  static_cast<uint32_t>(column / 8), static_cast<uint32_t>(row),
                                  o.key.sample + static_cast<uint32_t>(sample), o.key.step);
  const uint32_t pair = words[static_cast<size_t>(column % 8 / 2)];
  const uint32_t word = column % 2 == 0 ? pair % 65536 : pair / 65536;
  return word >= std::round(65536 * o.shape.dropout);
}

/// Returns one row of the softmax before dropout. Sets log_sum to the row's log-sum-exp.
std::vector<double> softmax_row(const Attention& o, int64_t sample, int64_t head, int64_t row,
                                double& log_sum) {
  std::vector<double> weights(static_cast<size_t>(row + 1));
  double sum = 0;
  for (int64_t key = 0; key <= row; ++key) {
    double score = 0;
    for (int64_t d = 0; d < o.shape.size; ++d)
      score += o.at(0, sample, head, row, d) * o.at(1, sample, head, key, d);
    weights[static_cast<size_t>(key)] = std::exp(score / std::sqrt(static_cast<double>(o.shape.size)));
    sum += weights[static_cast<size_t>(key)];
  }
  for (double& weight : weights) weight /= sum;
  log_sum = std::log(sum);
  return weights;
}

/// Returns a bound on the error of the scores for |q|, |k| <= 1. A score sums `size` products of at most 1.
/// It rounds once per product and again for the scale.
double score_error(const Attention& o) {
  const double size = static_cast<double>(o.shape.size);
  return (size + 2) * epsilon_of(o.dtype) * std::sqrt(size);
}

/// Returns a bound on the relative error of a weight. It has twice the scores' error (numerator and
/// denominator) and the errors of the exponential and of the sum.
double weight_error(const Attention& o) {
  return 2 * score_error(o) + static_cast<double>(o.shape.time + 8) * epsilon_of(o.dtype);
}

TEST(CausalAttention, WhatIsNotFiniteShows) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), 1e30}) {
    Attention o(attention_cases[0], DType::f32);
    o.qkv.set(0, bad);                             // a query of the first row
    o.qkv.set(o.shape.heads * o.shape.size, bad);  // the key of the same row
    launch_on(1, o.forward());
    EXPECT_FALSE(std::isfinite(o.y[0])) << bad;
  }
}

TEST(CausalAttention, ForwardMatchesReference) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const AttentionCase& c : attention_cases) {
      SCOPED_TRACE(concat(dtype, " time ", c.time, " size ", c.size, " dropout ", c.dropout));
      Attention o(c, dtype);
      launch_on(1, o.forward());
      const double scale = 1 / (1 - c.dropout);
      for (int64_t i = 0; i < c.batch * c.heads * c.time; ++i) {
        const int64_t sample = i / (c.heads * c.time), head = i / c.time % c.heads, row = i % c.time;
        double log_sum = 0;
        const std::vector<double> weights = softmax_row(o, sample, head, row, log_sum);
        ASSERT_NEAR(o.log_sum_exp[i], log_sum, weight_error(o) + 2 * epsilon_of(dtype) * std::fabs(log_sum));
        for (int64_t d = 0; d < c.size; ++d) {
          double sum = 0;
          for (int64_t key = 0; key <= row; ++key)
            if (kept(o, sample, head, row, key))
              sum += scale * weights[static_cast<size_t>(key)] * o.at(2, sample, head, key, d);
          // The weights sum to at most `scale`, and the values are at most 1. The sum has `time` products.
          const double bound = scale * (weight_error(o) + static_cast<double>(c.time) * epsilon_of(dtype));
          ASSERT_NEAR(o.y[((sample * c.time + row) * c.heads + head) * c.size + d], sum, bound)
              << "row " << row << " column " << d;
        }
      }
    }
}

TEST(CausalAttention, BackwardMatchesCentralDifferences) {
  for (const AttentionCase& c :
       {AttentionCase{2, 5, 2, 3, 0.4}, AttentionCase{1, 19, 1, 4}, AttentionCase{1, 1, 1, 2},
        AttentionCase{2, 5, 4, 3, 0.4, 2}, AttentionCase{1, 9, 4, 2, 0, 1}}) {
    SCOPED_TRACE(concat("time ", c.time));
    Attention o(c, DType::f64);
    o.run();
    expect_slopes(o.qkv, o.dqkv, [&] {
      launch_on(1, o.forward());
      return dot(o.y, o.dy);
    });
  }
}

TEST(CausalAttention, BackwardInFloatMatchesDouble) {
  for (const AttentionCase& c : attention_cases) {
    SCOPED_TRACE(concat("time ", c.time, " size ", c.size, " dropout ", c.dropout));
    Attention o(c, DType::f32), exact(c, DType::f64);
    for (int64_t i = 0; i < o.qkv.size(); ++i) exact.qkv.set(i, o.qkv[i]);
    for (int64_t i = 0; i < o.dy.size(); ++i) exact.dy.set(i, o.dy[i]);
    o.run();
    exact.run();
    // The gradient of a score is weight * (dweight - mean). Both factors are at most size / (1 - dropout) in
    // magnitude. Its error has those of the weight and of two sums of `size` products. A gradient of qkv sums
    // up to `time` gradients of scores for each query head of a group.
    const double size = static_cast<double>(c.size);
    const double time = static_cast<double>(c.time * c.all_heads().group());
    const double relative = weight_error(o) + (2 * size + time) * epsilon_of(DType::f32);
    const double score_bound = 2 * std::sqrt(size) * relative / (1 - c.dropout);
    const double value_bound = relative / (1 - c.dropout);
    for (int64_t i = 0; i < o.dqkv.size(); ++i)
      ASSERT_NEAR(o.dqkv[i], exact.dqkv[i], time * std::max(score_bound, value_bound)) << "element " << i;
  }
}

TEST(CausalAttention, DropoutFollowsTheKey) {
  // If the values are unit vectors then row `key` of y holds the weights themselves.
  Attention o({2, 40, 2, 40, 0.25}, DType::f32);
  for (int64_t i = 0; i < o.qkv.size(); ++i) {
    const int64_t column = i % 240, row = i / 240 % 40;
    if (column >= 160) o.qkv.set(i, column % 40 == row ? 1 : 0);
  }
  launch_on(1, o.forward());
  int64_t dropped = 0;
  for (int64_t i = 0; i < o.y.size(); ++i) {
    const int64_t column = i % 40, head = i / 40 % 2, row = i / 80 % 40, sample = i / 3200;
    const bool expected = column <= row && kept(o, sample, head, row, column);
    ASSERT_EQ(o.y[i] != 0, expected) << "sample " << sample << " head " << head << ": " << row << ", "
                                     << column;
    dropped += column <= row && !expected;
  }
  // The tolerance is four standard deviations of 3280 draws.
  EXPECT_NEAR(static_cast<double>(dropped), 0.25 * 3280, 4 * std::sqrt(3280 * 0.25 * 0.75));
}

TEST(CausalAttention, LaterTokensDoNotShowInTheBits) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t changed : {1, 31, 32, 45, 63}) {
      Attention o({1, 64, 2, 24}, dtype), other({1, 64, 2, 24}, dtype);
      // The values are large enough to overflow the exponential if an earlier query met them.
      for (int64_t i = changed * 144; i < other.qkv.size(); ++i) other.qkv.set(i, 1e4 * other.qkv[i]);
      launch_on(1, o.forward());
      launch_on(1, other.forward());
      for (int64_t i = 0; i < changed * 48; ++i) ASSERT_EQ(o.y[i], other.y[i]) << "element " << i;
      for (int64_t head = 0; head < 2; ++head)
        for (int64_t row = 0; row < changed; ++row)
          ASSERT_EQ(o.log_sum_exp[head * 64 + row], other.log_sum_exp[head * 64 + row]);
    }
}

TEST(CausalAttention, RowsFromAQueryOnAreThoseOfAll) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const AttentionCase& c : attention_cases)
      for (const int64_t first : {int64_t{0}, c.time / 3, c.time - 1, c.time}) {
        Attention all(c, dtype), some(c, dtype);
        launch_on(1, all.forward());
        CausalAttentionForward kernel = some.forward();
        kernel.first_query = first;
        launch_on(2, kernel);
        const int64_t columns = c.heads * c.size;
        for (int64_t i = 0; i < all.y.size(); ++i)
          if (i / columns % c.time >= first) {
            ASSERT_EQ(some.y[i], all.y[i]) << "element " << i;
          }
        for (int64_t i = 0; i < all.log_sum_exp.size(); ++i)
          if (i % c.time >= first) {
            ASSERT_EQ(some.log_sum_exp[i], all.log_sum_exp[i]) << "element " << i;
          }
      }
}

TEST(CausalAttention, EarlierTokensGetNoGradientFromMaskedWeights) {
  Attention o({1, 64, 1, 16}, DType::f32);
  for (int64_t i = 40 * 16; i < o.dy.size(); ++i) o.dy.set(i, 0);
  o.run();
  for (int64_t i = 40 * 48; i < o.dqkv.size(); ++i) ASSERT_EQ(o.dqkv[i], 0) << "element " << i;
}

TEST(CausalAttention, ThreadsDoNotShowInTheBits) {
  for (const AttentionCase& c : attention_cases) {
    Attention alone(c, DType::f32);
    alone.run();
    for (const int threads : {2, 4}) {
      Attention shared(c, DType::f32);
      shared.run(threads);
      EXPECT_EQ(shared.y, alone.y);
      EXPECT_EQ(shared.log_sum_exp, alone.log_sum_exp);
      EXPECT_EQ(shared.dqkv, alone.dqkv);
    }
  }
}

// The threads share the heads of the whole batch. For a single sample they share the parts of each head.
TEST(CausalAttention, ASampleGetsTheSameBitsAloneAndInABatch) {
  const AttentionCase whole{4, 601, 5, 20, 0.1}, one{1, 601, 5, 20, 0.1};
  Attention batch(whole, DType::f32);
  batch.run(2);
  const int64_t in = 601 * 300, out = 601 * 100;
  for (int64_t sample = 0; sample < 4; ++sample) {
    Attention alone(one, DType::f32);
    alone.key.sample = batch.key.sample + static_cast<uint32_t>(sample);
    for (int64_t i = 0; i < in; ++i) alone.qkv.set(i, batch.qkv[sample * in + i]);
    for (int64_t i = 0; i < out; ++i) alone.dy.set(i, batch.dy[sample * out + i]);
    alone.run(2);
    for (int64_t i = 0; i < out; ++i) ASSERT_EQ(alone.y[i], batch.y[sample * out + i]) << "sample " << sample;
    for (int64_t i = 0; i < in; ++i)
      ASSERT_EQ(alone.dqkv[i], batch.dqkv[sample * in + i]) << "sample " << sample;
  }
}

TEST(CausalAttention, SumsOfDqkvAreThoseOfItsColumns) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const AttentionCase& c : {AttentionCase{2, 33, 2, 8}, AttentionCase{2, 33, 4, 8, 0, 2}}) {
      Attention o(c, dtype);
      Values sums({c.packed_columns()}, dtype), of_columns(sums.shape(), dtype);
      launch_on(1, o.forward());
      CausalAttentionBackward backward = o.backward();
      backward.dqkv_sum = sums.view();
      launch_on(3, backward);
      launch_on(1, ColumnSum{.x = o.dqkv.view(), .y = of_columns.view()});
      EXPECT_TRUE(sums == of_columns);
    }
}

/// Copies columns [first, first + columns) of each row.
Values columns_of(const Values& from, int64_t first, int64_t columns) {
  Values to(from.shape().with_last(columns), from.dtype());
  for (int64_t i = 0; i < to.size(); ++i)
    to.set(i, from[i / columns * from.shape()[-1] + first + i % columns]);
  return to;
}

TEST(CausalAttention, ApartQueriesKeysAndValuesHaveTheBitsOfPackedOnes) {
  for (const DType dtype : float_types)
    for (const AttentionCase& c : {AttentionCase{2, 33, 4, 24, 0.1, 2}, AttentionCase{1, 20, 3, 16}}) {
      Attention packed(c, dtype), apart(c, dtype);
      packed.run(2);
      const int64_t queries = c.heads * c.size, keys = c.all_heads().keys * c.size;
      Values q = columns_of(packed.qkv, 0, queries), k = columns_of(packed.qkv, queries, keys);
      Values v = columns_of(packed.qkv, queries + keys, keys), dq(q.shape(), dtype);
      Values dkv(k.shape().with_last(2 * keys), dtype);  // rows of other lengths than those of k and v
      CausalAttentionForward forward = apart.forward();
      forward.qkv = {q.view(), k.view(), v.view()};
      launch_on(2, forward);
      CausalAttentionBackward backward = apart.backward();
      backward.qkv = forward.qkv;
      backward.dqkv = {dq.view(), lockstep::columns_of(dkv.view(), 0, keys),
                       lockstep::columns_of(dkv.view(), keys, keys)};
      launch_on(2, backward);
      EXPECT_EQ(apart.y, packed.y) << dtype;
      EXPECT_EQ(apart.log_sum_exp, packed.log_sum_exp) << dtype;
      EXPECT_EQ(dq, columns_of(packed.dqkv, 0, queries)) << dtype;
      EXPECT_EQ(dkv, columns_of(packed.dqkv, queries, 2 * keys)) << dtype;
    }
}

TEST(CausalAttention, AGradientAddsItsQueryHeadsInOrderAndRoundsOnce) {
  // A single token has the weight 1. So the gradient of its value is the sum of dy over four query heads. In
  // fp32 the first row of numbers has another sum in any other order. Rounded to 16 bits after each addition,
  // the second row adds up to its first number.
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const double large = dtype == DType::f16 ? 2048 : 256;
    for (const std::vector<double>& numbers :
         {std::vector<double>{16384, 0x1p-11, -16384, 0x1p-11}, {large, 1, 1, 0}}) {
      Attention o({1, 1, 4, 1, 0, 1}, dtype);
      for (int64_t head = 0; head < 4; ++head) o.dy.set(head, numbers[static_cast<size_t>(head)]);
      o.run();
      EXPECT_EQ(o.dqkv[5], numbers[0] == large ? large + 2 : 0x1p-11) << dtype;
    }
  }
}

TEST(CausalAttention, RefusesWhatDoesNotFit) {
  const auto refused = [](auto change) {
    Attention o({2, 5, 2, 4}, DType::f32);
    CausalAttentionBackward kernel = o.backward();
    change(kernel);
    EXPECT_THROW(kernel.check(), Error);
  };
  refused([](auto& kernel) { kernel.heads = 5; });
  refused([](auto& kernel) { kernel.heads = 0; });
  refused([](auto& kernel) { kernel.heads.keys = 1; });
  refused([](auto& kernel) { kernel.heads.keys = 4; });
  refused([](auto& kernel) { kernel.qkv.q.shape = {10, 8}; });
  refused([](auto& kernel) { kernel.qkv.v.shape = {2, 5, 4}; });
  refused([](auto& kernel) { kernel.qkv.k.dtype = DType::bf16; });
  refused([](auto& kernel) { kernel.qkv.q.stride = 7; });
  refused([](auto& kernel) { kernel.qkv.v.stride = 25; });
  refused([](auto& kernel) { kernel.y.shape = {2, 5, 24}; });
  refused([](auto& kernel) { kernel.log_sum_exp.shape = {2, 5, 2}; });
  refused([](auto& kernel) { kernel.dropout = 1; });
  refused([](auto& kernel) { kernel.dy.dtype = DType::f64; });
  refused([](auto& kernel) { kernel.dqkv.k.shape = {2, 5, 4}; });
  refused([](auto& kernel) { kernel.dqkv_sum = {kernel.dy.data, {8}, DType::f32}; });
  refused([](auto& kernel) {
    kernel.dqkv_sum = {kernel.dy.data, {24}, DType::f32};
    kernel.dqkv.k = kernel.qkv.k;  // dk is not between dq and dv
  });
  Attention o({2, 5, 2, 4}, DType::f32);
  CausalAttentionForward kernel = o.forward();
  kernel.first_query = 6;
  EXPECT_THROW(kernel.check(), Error);
  EXPECT_THROW(unpack_heads(o.qkv.view(), {3, 1}), Error);
}

}  // namespace
}  // namespace lockstep::testing
