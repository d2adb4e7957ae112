// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/parameters_hash.h"

#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "lockstep/core/hash.h"
#include "lockstep/tensor/create.h"

namespace lockstep {
namespace {

std::vector<NamedTensor> example() {
  return {{"b.weight", from_values<float>({1, 2, 3, 4, 5, 6}, {2, 3})},
          {"a.bias", from_values<float>({0.5f}, {1})}};
}

TEST(ParametersHash, IsTheOneOfTheDocumentedBytes) {
  // Computed by the reference implementation (xxhash.xxh3_64 of Python) over:
  //   "a.bias\0", int64 1, fp32 0.5, "b.weight\0", int64 2, int64 3, fp32 1 2 3 4 5 6.
  EXPECT_EQ(hash_text(parameters_hash(example())), "2d31ef423beedfca");
}

TEST(ParametersHash, DoesNotDependOnTheOrderOfTheList) {
  std::vector<NamedTensor> parameters = example();
  std::swap(parameters[0], parameters[1]);
  EXPECT_EQ(parameters_hash(parameters), parameters_hash(example()));
}

TEST(ParametersHash, SeesNamesShapesAndEveryBit) {
  const uint64_t hash = parameters_hash(example());
  std::vector<NamedTensor> renamed = example(), reshaped = example(), changed = example();
  renamed[0].name = "b.weighs";
  reshaped[0].tensor = reshaped[0].tensor.reshape({3, 2});
  changed[1].tensor.data<float>()[0] = 0x1.000002p-1f;
  EXPECT_NE(parameters_hash(renamed), hash);
  EXPECT_NE(parameters_hash(reshaped), hash);
  EXPECT_NE(parameters_hash(changed), hash);
}

TEST(ParametersHash, ATiedWeightCountsOnce) {
  std::vector<NamedTensor> tied = example();
  tied.push_back({"z.weight", tied[0].tensor});
  EXPECT_EQ(parameters_hash(tied), parameters_hash(example()));
  std::vector<NamedTensor> equal = example();
  equal.push_back({"z.weight", example()[0].tensor});
  EXPECT_NE(parameters_hash(equal), parameters_hash(example()));
}

TEST(ParametersHash, TextHasSixteenDigits) {
  EXPECT_EQ(hash_text(0), "0000000000000000");
  EXPECT_EQ(hash_text(~uint64_t{0}), "ffffffffffffffff");
}

}  // namespace
}  // namespace lockstep
