// SPDX-License-Identifier: Apache-2.0
// Files of tokenizers as other systems leave them.
#include <cstdint>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/tokenizer/load_tokenizer.h"
#include "support/full_pipe.h"
#include "support/temporary_directory.h"
#include "support/user_error.h"
#include "tokenizer/golden_tokenizers.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Returns a text in base64 (RFC 4648).
std::string in_base64(const std::string& bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k)
      text +=
          i + k <= bytes.size()
              ? "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[bits >> (18 - 6 * k) & 63]
              : '=';
  }
  return text;
}

/// Returns a tiktoken file with as many tokens as Llama 3's: one, two and three bytes long.
std::string file_of_llama3_size() {
  std::string text;
  for (int id = 0; id < 128000; ++id) {
    const int two = id - 256, three = two - 65536;
    const auto byte = [](int value) { return static_cast<char>(value & 255); };
    const std::string token = two < 0 ? std::string{byte(id)}
                              : three < 0
                                  ? std::string{byte(two >> 8), byte(two)}
                                  : std::string{byte(three >> 10), byte(three >> 5 & 31), byte(three & 31)};
    text += concat(in_base64(token), " ", id, "\n");
  }
  return text;
}

// One file serves all versions of Llama 3. The ids are those of llama_models 0.3.0.
TEST(ForeignFiles, SpecialTokensOfLlama3NeedItsVersion) {
  const TemporaryDirectory folder;
  const std::string text = file_of_llama3_size();
  const auto path_of = [&](const std::string& name) {
    write_text(folder / name, text);
    return folder / name;
  };
  const auto ids_of = [](const std::string& path, const std::string& names) {
    return load_tokenizer(path)->encode(names);
  };
  expect_contains(user_error([&] { load_tokenizer(path_of("tokenizer.model")); }),
                  {"tokenizer.model", "<|eom_id|>", "llama3.0 or llama3.1", "tokenizer.json"});
  const std::string later =
      "<|step_id|><|eot_id|><|image|><|reserved_special_token_1|><|reserved_special_token_245|>";
  EXPECT_EQ(ids_of(path_of("Llama-3.2-1B.model"), later),
            (std::vector<int32_t>{128005, 128009, 128011, 128003, 128255}));
  EXPECT_EQ(
      ids_of(path_of("llama3.0"), "<|reserved_special_token_3|><|eot_id|><|reserved_special_token_250|>"),
      (std::vector<int32_t>{128005, 128009, 128255}));
  write_text(folder / "params.json", R"({"vocab_size": 128256, "use_scaled_rope": true})");
  EXPECT_EQ(ids_of(folder / "tokenizer.model", later)[0], 128005);
  write_text(folder / "params.json", R"({"vocab_size": 32000})");
  expect_contains(user_error([&] { load_tokenizer(folder / "tokenizer.model"); }), {"later versions"});
}

// Editors on Windows end lines with CR LF and begin the file with a byte order mark.
TEST(ForeignFiles, OfWindowsHaveTheSameIds) {
  const auto changed = [](std::string text) {
    for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 2))
      text.insert(at, "\r");
    return "\xEF\xBB\xBF" + text;
  };
  const TemporaryDirectory folder;
  const std::string text = "Hello world, it's \u00fc";
  for (const char* file : {"gpt2/vocab.json", "gpt2/merges.txt", "cl100k_small.tiktoken"})
    write_text(folder / fs::path(file).filename().string(), changed(read_text(golden_tokenizers + file)));
  EXPECT_EQ(load_tokenizer(folder.path())->encode(text), golden_tokenizer("gpt2")->encode(text));
  EXPECT_EQ(load_tokenizer(folder / "cl100k_small.tiktoken")->encode(text),
            golden_tokenizer("cl100k")->encode(text));
}

TEST(ForeignFiles, MayBePipes) {
  const std::string json = read_text(golden_tokenizers + "llama3.json");
  const FullPipe pipe(json);
  EXPECT_EQ(load_tokenizer(pipe.path())->to_json(), json);
}

}  // namespace
}  // namespace lockstep
