// SPDX-License-Identifier: Apache-2.0
// Checksums of blocks that another rank sent. A rank is no stranger, so a bad text is an Error.
#include "lockstep/snapshot/tensor_sums.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const std::vector<StoredTensor> tensors = {{"a", DType::f32, {5000}, {100, 5100}, 16},
                                                    {"b", DType::f32, {3}, {8192, 8195}, 16 + 20000}};
  const std::string text(fuzz::text_of(data, bytes));
  fuzz::accepts<std::exception>([&] {
    TensorSums sums(tensors);
    sums.add(text);
    sums.of(0);
    const std::string packed = sums.packed({true, true});
    TensorSums again(tensors);
    again.add(packed);
    fuzz::check(again.packed({true, true}) == packed, "reads back differently");
  });
  fuzz::accepts<std::exception>([&] {
    const std::vector<std::string> texts = unpack(text);
    fuzz::check(pack(texts) == text, "a packed text reads back differently");
  });
  return 0;
}
