// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <gtest/gtest.h>

#include "support/user_error.h"
#include "tokenizer/golden_tokenizers.h"

namespace lockstep {
namespace {

using Ids = std::vector<int32_t>;
using Files = std::map<std::string, std::string>;

/// A folder with GPT-2's two files or llama3.json, and with other files next to them.
class TokenizerFolder {
 public:
  explicit TokenizerFolder(const Files& files, bool is_whole = false) {
    if (is_whole) write_text(folder_ / "tokenizer.json", read_text(golden_tokenizers + "llama3.json"));
    for (const char* name : {"vocab.json", "merges.txt"})
      write_text(folder_ / name, read_text(golden_tokenizers + "gpt2/" + name));
    for (const auto& [name, text] : files) write_text(folder_ / name, text);
  }

  std::shared_ptr<const Tokenizer> load() const { return load_tokenizer(folder_.path()); }
  Ids ids(const std::string& text) const { return load()->encode(text); }
  std::string error() const {
    return user_error([this] { load(); });
  }

 private:
  TemporaryDirectory folder_;
};

// The ids of this file come from GPT2Tokenizer.from_pretrained() of transformers 5.23.0.
TEST(TokenizerConfig, AddsTokensAndABlankToTwoFiles) {
  const Files added{{"added_tokens.json", R"({"<|user|>": 700})"}};
  EXPECT_EQ(TokenizerFolder(Files{}).ids("a<|user|>b"), (Ids{65, 28, 92, 85, 83, 268, 92, 30, 66}));
  EXPECT_EQ(TokenizerFolder(added).ids("a<|user|>b"), (Ids{65, 700, 66}));
  Files both = added;
  both["tokenizer_config.json"] = R"({"add_prefix_space": true})";
  EXPECT_EQ(TokenizerFolder(both).ids("a<|user|>b"), (Ids{262, 700, 282}));
  EXPECT_EQ(TokenizerFolder(both).ids("Hello"), (Ids{221, 40, 69, 344, 79}));
  const auto tokenizer = TokenizerFolder(both).load();
  EXPECT_EQ(tokenizer_from_json(tokenizer->to_json(), "again")->encode("a<|user|>b"), (Ids{262, 700, 282}));
  // A list in the configuration replaces the other lists.
  both["tokenizer_config.json"] =
      R"({"added_tokens_decoder": {"701": {"content": "<|y|>"}, "700": {"content": "<|x|>", "special": true}}})";
  EXPECT_EQ(TokenizerFolder(both).ids("a<|x|> b"), (Ids{65, 700, 282}));
  EXPECT_EQ(TokenizerFolder(both).ids("<|y|><|endoftext|>"), (Ids{701, 0}));
  EXPECT_EQ(TokenizerFolder(both).ids("a<|user|>b"), (Ids{65, 28, 92, 85, 83, 268, 92, 30, 66}));
}

TEST(TokenizerConfig, MakesTokensWithARoleAddedOnes) {
  const std::string config = R"({"bos_token": "a", "eos_token": {"content": "b"}, "unk_token": null})";
  const TokenizerFolder named(Files{{"tokenizer_config.json", config}});
  EXPECT_EQ(named.ids("x<pad>y"), (Ids{88, 28, 80, 65, 68, 30, 89}));
  EXPECT_EQ(named.ids("a<|x|> b"), (Ids{65, 28, 92, 88, 92, 30, 221, 66}));
  EXPECT_EQ(named.load()->beginning_of_text(), 65);
  EXPECT_EQ(named.load()->end_of_text(), 66);
  EXPECT_NE(named.ids("<|endoftext|>"), Ids{0});  // it has no role any more
  Files pad{{"special_tokens_map.json", R"({"pad_token": "<pad>"})"}};
  expect_contains(TokenizerFolder(pad).error(),
                  {"special_tokens_map.json: pad_token names the token \"<pad>\""});
  pad["added_tokens.json"] = R"({"<pad>": 700})";
  EXPECT_EQ(TokenizerFolder(pad).ids("x<pad>y"), (Ids{88, 700, 89}));
}

TEST(TokenizerConfig, RefusesWhatIsNotComputed) {
  const auto error = [](const std::string& config) {
    return TokenizerFolder(Files{{"tokenizer_config.json", config}}).error();
  };
  expect_contains(error(R"({"add_bos_token": true})"), {"tokenizer_config.json: add_bos_token is true"});
  expect_contains(error(R"({"tokenizer_class": "Qwen2Tokenizer"})"), {"tokenizer_class is Qwen2Tokenizer"});
  expect_contains(error(R"({"split_special_tokens": true})"), {"split_special_tokens is true"});
  expect_contains(error(R"({"added_tokens_decoder": {"700": {"content": "x", "lstrip": true}}})"),
                  {"added_tokens_decoder.700.lstrip is true"});
  expect_contains(error(R"({"added_tokens_decoder": {"x": {"content": "x"}}})"), {"has \"x\""});
  expect_contains(error(R"({"added_tokens_decoder": {"705": {"content": "<|x|>"}}})"),
                  {"added_tokens_decoder.705 gives \"<|x|>\" the id 705", "the next id is 700"});
  expect_contains(TokenizerFolder(Files{{"added_tokens.json", R"({"<|user|>": 699})"}}).error(),
                  {"added_tokens.json has the id 699, which belongs to another token"});
}

TEST(TokenizerConfig, MayNotContradictATokenizerJson) {
  const auto load = [](const std::string& config) {
    return TokenizerFolder(Files{{"tokenizer_config.json", config}}, true);
  };
  const std::string agreeing =
      R"({"add_prefix_space": false, "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<|tool|>",)"
      R"( "added_tokens_decoder": {"900": {"content": "<|tool|>"}}})";
  EXPECT_EQ(load(agreeing).ids("<|tool|>"), Ids{900});
  expect_contains(load(R"({"add_prefix_space": true})").error(),
                  {"tokenizer_config.json: add_prefix_space is true", "tokenizer.json it is not"});
  expect_contains(load(R"({"added_tokens_decoder": {"901": {"content": "<|tool|>"}}})").error(),
                  {"added_tokens_decoder.901 gives \"<|tool|>\" the id 901", "no added token"});
  expect_contains(load(R"({"pad_token": "<pad>"})").error(), {"pad_token names the token \"<pad>\""});
  expect_contains(TokenizerFolder(Files{{"added_tokens.json", R"({"<|user|>": 901})"}}, true).error(),
                  {"added_tokens.json gives \"<|user|>\" the id 901"});
}

/// Each part between added tokens must begin with the blank. The tokenizer also caches pieces across parts.
TEST(TokenizerConfig, PutsABlankBeforeEveryPart) {
  const auto plain = TokenizerFolder(Files{}).load();
  const auto blank =
      TokenizerFolder(Files{{"tokenizer_config.json", R"({"add_prefix_space": true})"}}).load();
  std::string written, whole;
  for (int i = 0; i < 3; ++i)
    for (const nlohmann::json& text : golden_expected()["texts"]) {
      const auto part = text.get<std::string>();
      // Parts with their own added tokens are skipped. The other parts cover their pieces.
      if (part.empty() || part.find("<|") != std::string::npos) continue;
      written += part + "<|endoftext|>";
      whole += (part.front() == ' ' ? "" : " ") + part + "<|endoftext|>";
    }
  EXPECT_EQ(blank->encode(written), plain->encode(whole));
}

}  // namespace
}  // namespace lockstep
