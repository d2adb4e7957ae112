// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/embedding.h"

#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

Values random_ids(int64_t count, int64_t rows) {
  Values ids({count}, DType::i32);
  for (int64_t i = 0; i < count; ++i)
    ids.set(i, static_cast<double>(philox(5, {static_cast<uint32_t>(i), 0, 0, 0})[0] %
                                   static_cast<uint32_t>(rows)));
  return ids;
}

TEST(Embedding, ForwardPicksRows) {
  for (const int64_t columns : {1, 7, 65, 384}) {
    Values table = Values::uniform({11, columns}, DType::f32, 1);
    Values ids = random_ids(500, 11);
    Values y({500, columns});
    launch_on(3, EmbeddingForward{.ids = ids.view(), .table = table.view(), .y = y.view()});
    expect_close(
        y, [&](int64_t i) { return table[static_cast<int64_t>(ids[i / columns]) * columns + i % columns]; },
        0.0, 0.0);
  }
}

TEST(Embedding, BackwardAddsInOrderOfPositions) {
  for (const int64_t rows : {3, 600})
    for (const int64_t columns : {1, 7, 65, 384}) {
      Values ids = random_ids(200, rows);
      Values dy = Values::uniform({200, columns}, DType::f32, 2);
      Values dtable = Values::uniform({rows, columns}, DType::f32, 3);
      std::vector<float> expected(static_cast<size_t>(rows * columns));
      for (int64_t i = 0; i < dy.size(); ++i)
        expected[static_cast<size_t>(ids[i / columns]) * columns + i % columns] += static_cast<float>(dy[i]);
      for (const int threads : {1, 3}) {
        launch_on(threads, EmbeddingBackward{.ids = ids.view(), .dy = dy.view(), .dtable = dtable.view()});
        expect_close(
            dtable, [&](int64_t i) { return expected[static_cast<size_t>(i)]; }, 0.0, 0.0);
      }
    }
}

// Unused rows stay bit-identical. Adding 0 to them would turn -0 into 0.
TEST(Embedding, BackwardAddsFinishedSumsToWhatIsThere) {
  for (const int64_t rows : {3, 600})
    for (const int64_t columns : {7, 65, 384}) {
      Values ids = random_ids(200, rows), dy = Values::uniform({200, columns}, DType::f32, 2);
      Values sums({rows, columns}), expected = Values::uniform({rows, columns}, DType::f32, 3);
      for (int64_t row = 0; row < rows; ++row) expected.set(row * columns, -0.0);
      const Values before = expected;
      launch_on(1, EmbeddingBackward{.ids = ids.view(), .dy = dy.view(), .dtable = sums.view()});
      std::vector<bool> is_used(static_cast<size_t>(rows));
      for (int64_t i = 0; i < ids.size(); ++i) is_used[static_cast<size_t>(ids[i])] = true;
      for (int64_t i = 0; i < expected.size(); ++i)
        if (is_used[static_cast<size_t>(i / columns)])
          expected.set(i, static_cast<float>(before[i]) + static_cast<float>(sums[i]));
      for (const int threads : {1, 3}) {
        Values dtable = before;
        launch_on(threads, EmbeddingBackward{
                               .ids = ids.view(), .dy = dy.view(), .dtable = dtable.view(), .adds = true});
        EXPECT_TRUE(dtable == expected) << rows << " x " << columns;
      }
    }
}

TEST(Embedding, BackwardOf16BitsAddsInFp32) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Values ids = random_ids(200, 3);
    Values dy = Values::uniform({200, 7}, dtype, 2);
    Values exact({200, 7}), expected({3, 7}), dtable({3, 7});
    for (int64_t i = 0; i < dy.size(); ++i) exact.set(i, dy[i]);
    launch_on(1, EmbeddingBackward{.ids = ids.view(), .dy = exact.view(), .dtable = expected.view()});
    launch_on(3, EmbeddingBackward{.ids = ids.view(), .dy = dy.view(), .dtable = dtable.view()});
    EXPECT_TRUE(dtable == expected);
  }
}

TEST(Embedding, IdOutsideNamesPositionAndId) {
  Values table({4, 2}), y({3, 2});
  for (const int32_t wrong : {4, -1}) {
    Values ids = Values::of({0, 3, wrong});
    try {
      launch_on(1, EmbeddingForward{.ids = ids.view(), .table = table.view(), .y = y.view()});
      FAIL();
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("id " + std::to_string(wrong) + " at position 2"), std::string::npos) << text;
    }
    EXPECT_THROW(launch_on(1, EmbeddingBackward{.ids = ids.view(), .dy = y.view(), .dtable = table.view()}),
                 Error);
  }
}

}  // namespace
}  // namespace lockstep::testing
