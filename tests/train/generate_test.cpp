// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <gtest/gtest.h>
#include <set>

#include "tensor/create.h"
#include "tokenizer/char_tokenizer.h"
#include "train/writer.h"

namespace lockstep {
namespace {

/// The likeliest token after the last `block_size` of ids, all of them read anew.
int32_t likeliest(const Gpt& model, const std::vector<int32_t>& ids) {
  const NoGrad no_grad;
  const int64_t time = std::min<int64_t>(model.options().block_size, static_cast<int64_t>(ids.size()));
  const Tensor logits = model(from_values(std::vector<int32_t>(ids.end() - time, ids.end()), {1, time}), {});
  const auto last = to_doubles(logits.reshape({time, -1}).slice(time - 1, time));
  return static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin());
}

// Within the block size, beyond it from the start, and across it.
TEST(Generate, WritesWhatAModelWritesThatReadsTheWholeWindowAnew) {
  const std::string letters = "abcdefghijklmnop";
  const CharTokenizer tokenizer(letters);
  const Gpt model(
      {.vocabulary = 16, .block_size = 8, .layers = 2, .heads = 2, .width = 16, .tie_weights = false}, 5);
  uint32_t stream_id = 0;
  for (const auto& [name, tensor] : model.parameters())
    if (tensor.shape().rank() == 2) fill_normal(tensor, 0.0, 1.0, 7, stream_id++);
  std::set<std::string> endings;
  for (size_t length = 1; length <= letters.size(); ++length) {
    const std::string prompt = letters.substr(letters.size() - length);
    std::vector<int32_t> ids = tokenizer.encode(prompt);
    for (int token = 0; token < 10; ++token) ids.push_back(likeliest(model, ids));
    const std::string text = tokenizer.decode(ids);
    const GenerateOptions likeliest_ten{.tokens = 10, .temperature = 0.0};
    EXPECT_EQ(write_text(model, tokenizer, prompt, likeliest_ten), text);
    const auto any_model = [&](const Tensor& read) { return model(read, {}); };
    EXPECT_EQ(tokenizer.decode(generate(any_model, 8, tokenizer.encode(prompt), likeliest_ten)), text);
    endings.insert(text.substr(length));
  }
  EXPECT_GT(endings.size(), 3u) << "texts so much alike hide mistakes";
}

}  // namespace
}  // namespace lockstep
