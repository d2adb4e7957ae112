// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/embedding.h"

#include "kernels/cuda/on_gpu.h"

namespace lockstep::testing {
namespace {

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};

/// Returns ids in [0, rows). About every second id is `frequent` unless that is negative.
Values random_ids(int64_t count, int64_t rows, int32_t frequent = -1) {
  Values ids({count}, DType::i32);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t word = philox(5, {static_cast<uint32_t>(i), 0, 0, 0})[0];
    const bool is_frequent = frequent >= 0 && (word & 1u);
    ids.set(i, is_frequent ? frequent : static_cast<double>((word >> 1) % static_cast<uint32_t>(rows)));
  }
  return ids;
}

Values embed_on_gpu(const Values& ids, const Values& table, int64_t columns, int64_t shift = 0) {
  OnGpu on_ids(ids), on_table(table, shift);
  OnGpu y = OnGpu::poisoned({ids.size(), columns}, on_table.view().dtype);
  launch(gpu_stream(), EmbeddingForward{.ids = on_ids.view(), .table = on_table.view(), .y = y.view()});
  return y.values();
}

Values add_on_gpu(const Values& ids, const Values& dy, int64_t rows, int64_t columns, int64_t shift = 0) {
  OnGpu on_ids(ids), on_dy(dy, shift), dtable = OnGpu::poisoned({rows, columns}, DType::f32);
  launch(gpu_stream(), EmbeddingBackward{.ids = on_ids.view(), .dy = on_dy.view(), .dtable = dtable.view()});
  return dtable.values();
}

TEST(EmbeddingOnGpu, ForwardPicksRows) {
  LOCKSTEP_NEEDS_GPU();
  for_each_schedule([] {
    for (const DType dtype : dtypes)
      for (const int64_t columns : {1, 7, 64, 65, 384})
        for (const int64_t shift : {0, 1}) {
          Values table = Values::uniform({11, columns}, dtype, 1), ids = random_ids(45, 11);
          Values expected({45, columns}, dtype);
          launch_on(1, EmbeddingForward{.ids = ids.view(), .table = table.view(), .y = expected.view()});
          EXPECT_TRUE(embed_on_gpu(ids, table, columns, shift) == expected) << dtype << " " << columns;
        }
  });
}

TEST(EmbeddingOnGpu, AnIdOutsideGivesARowOfNan) {
  LOCKSTEP_NEEDS_GPU();
  const Values ids = Values::of({3, -1, 0, 4, 2147483647, -2147483647 - 1, 1});
  for (const DType dtype : dtypes)
    for (const int64_t columns : {5, 16}) {
      const Values table = Values::uniform({4, columns}, dtype, 1);
      const Values y = embed_on_gpu(ids, table, columns);
      for (int64_t i = 0; i < y.size(); ++i) {
        const double id = ids[i / columns];
        if (id < 0 || id > 3)
          EXPECT_TRUE(std::isnan(y[i]));
        else
          EXPECT_EQ(y[i], table[static_cast<int64_t>(id) * columns + i % columns]);
      }
    }
}

struct Backward {
  int64_t tokens, rows, columns;
  int32_t frequent = -1;
};

/// Runs of every length, one and two passes of the sort, one and several tiles of 2048, whole and ragged
/// columns.
const std::vector<Backward> backwards{
    {1, 1, 1},       {0, 5, 8},      {64, 1, 7},     {65, 1, 8},          {200, 3, 65},
    {300, 300, 384}, {2049, 40, 16}, {5000, 255, 9}, {4500, 256, 8, 100}, {3000, 1000, 24, 999}};

TEST(EmbeddingOnGpu, BackwardOfIntegersIsExact) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : dtypes)
    for (const auto& [tokens, rows, columns, frequent] : backwards) {
      const Values ids = random_ids(tokens, rows, frequent);
      Values dy({tokens, columns}, dtype), expected({rows, columns});
      for (int64_t i = 0; i < dy.size(); ++i) {
        dy.set(i, static_cast<double>(i % 13 - 6));
        const int64_t target = static_cast<int64_t>(ids[i / columns]) * columns + i % columns;
        expected.set(target, expected[target] + dy[i]);
      }
      EXPECT_TRUE(add_on_gpu(ids, dy, rows, columns) == expected) << dtype << " " << tokens << " " << rows;
    }
}

TEST(EmbeddingOnGpu, BackwardMatchesReferenceWithTheSameBitsInEverySchedule) {
  LOCKSTEP_NEEDS_GPU();
  for (const auto& [tokens, rows, columns, frequent] : backwards) {
    const Values ids = random_ids(tokens, rows, frequent);
    const Values dy = Values::uniform({tokens, columns}, DType::f32, 2);
    std::vector<double> expected(static_cast<size_t>(rows * columns)), magnitude(expected.size());
    for (int64_t i = 0; i < dy.size(); ++i) {
      const auto target = static_cast<size_t>(static_cast<int64_t>(ids[i / columns]) * columns + i % columns);
      expected[target] += dy[i];
      magnitude[target] += std::fabs(dy[i]);
    }
    std::vector<Values> results;
    for_each_schedule([&, table_rows = rows, width = columns] {
      results.push_back(add_on_gpu(ids, dy, table_rows, width));
    });
    results.push_back(add_on_gpu(ids, dy, rows, columns, 1));  // no address is aligned to 16 bytes
    for (const Values& result : results) EXPECT_TRUE(result == results[0]);
    // A number has at most 64 additions in its piece and one for each piece of the batch.
    const double additions = 64.0 + static_cast<double>(tokens) / 64.0;
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(results[0][static_cast<int64_t>(i)], expected[i], additions * 0x1p-24 * magnitude[i]);
  }
}

TEST(EmbeddingOnGpu, BackwardAddsFinishedSumsToWhatIsThere) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : dtypes)
    for (const auto& [tokens, rows, columns, frequent] : backwards)
      for (const int64_t shift : {0, 1}) {
        const Values ids = random_ids(tokens, rows, frequent);
        const Values dy = Values::uniform({tokens, columns}, dtype, 2);
        const Values sums = add_on_gpu(ids, dy, rows, columns);
        Values expected = Values::uniform({rows, columns}, DType::f32, 3);
        for (int64_t row = 0; row < rows; ++row) expected.set(row * columns, -0.0);
        OnGpu on_ids(ids), on_dy(dy), dtable(expected, shift);
        std::vector<bool> is_used(static_cast<size_t>(rows));
        for (int64_t i = 0; i < tokens; ++i) is_used[static_cast<size_t>(ids[i])] = true;
        for (int64_t i = 0; i < expected.size(); ++i)
          if (is_used[static_cast<size_t>(i / columns)])
            expected.set(i, static_cast<float>(expected[i]) + static_cast<float>(sums[i]));
        launch(gpu_stream(),
               EmbeddingBackward{
                   .ids = on_ids.view(), .dy = on_dy.view(), .dtable = dtable.view(), .adds = true});
        EXPECT_TRUE(dtable.values() == expected) << dtype << " " << tokens << " " << rows;
      }
}

/// A row's bits do not depend on the position of its run among the others.
TEST(EmbeddingOnGpu, ARowsBitsDependOnItsOwnGradientsAlone) {
  LOCKSTEP_NEEDS_GPU();
  constexpr int64_t tokens = 500, columns = 8;
  const Values dy = Values::uniform({tokens, columns}, DType::f32, 2);
  const Values alone = add_on_gpu(Values({tokens}, DType::i32), dy, 1, columns);
  for (const int64_t others : {1, 63, 64, 300}) {
    Values ids({tokens + others}, DType::i32), all({tokens + others, columns});
    int64_t next = 0;
    for (int64_t i = 0; i < ids.size(); ++i) {
      const bool is_other = i % 2 == 0 && i / 2 < others;
      ids.set(i, is_other ? 2.0 : 5.0);
      for (int64_t column = 0; column < columns; ++column)
        all.set(i * columns + column, is_other ? 0.25 : dy[next++]);
    }
    const Values result = add_on_gpu(ids, all, 6, columns);
    for (int64_t column = 0; column < columns; ++column)
      EXPECT_EQ(result[5 * columns + column], alone[column]) << others;
  }
}

TEST(EmbeddingOnGpu, BackwardPassesOverIdsOutside) {
  LOCKSTEP_NEEDS_GPU();
  Values ids = random_ids(300, 3), inside({300, 8}), dy({300, 8});
  for (int64_t i = 0; i < dy.size(); ++i) {
    const bool is_outside = i / 8 % 3 == 0;
    dy.set(i, static_cast<double>(i % 13 - 6));
    inside.set(i, is_outside ? 0.0 : dy[i]);
  }
  const Values expected = add_on_gpu(ids, inside, 3, 8);
  for (int64_t i = 0; i < 300; i += 3) ids.set(i, i % 2 ? -1.0 : 3.0 + static_cast<double>(i));
  EXPECT_TRUE(add_on_gpu(ids, dy, 3, 8) == expected);
}

TEST(EmbeddingOnGpu, ManyRowsTakeThreePassesOfTheSort) {
  LOCKSTEP_NEEDS_GPU();
  constexpr int64_t rows = 65536 + 40;
  Values ids = random_ids(700, rows), dy({700, 1}), expected({rows, 1});
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (i % 3 == 0) ids.set(i, static_cast<double>(65536 + i % 40));
    dy.set(i, static_cast<double>(i % 13 - 6));
    const auto row = static_cast<int64_t>(ids[i]);
    expected.set(row, expected[row] + dy[i]);
  }
  EXPECT_TRUE(add_on_gpu(ids, dy, rows, 1) == expected);
}

}  // namespace
}  // namespace lockstep::testing
