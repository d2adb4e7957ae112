// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

#include "lockstep/tokenizer/tokenizer_json.h"
#include "support/user_error.h"
#include "tokenizer/golden_tokenizers.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

std::string json_error(const std::function<void(Json&)>& change) {
  Json file = Json::parse(read_text(golden_tokenizers + "llama3.json"));
  change(file);
  return user_error([&] { tokenizer_from_json(file.dump(), "t.json"); });
}

TEST(BadTokenizerFile, ThatTheSystemCannotReachIsNamed) {
  const TemporaryDirectory folder;
  const std::string loop = folder / "tokenizer.json";
  std::filesystem::create_symlink(loop, loop);
  const std::string long_name = folder / std::string(400, 'x');
  for (const std::string& path : {loop, folder.path(), long_name, long_name + "/vocab.json"})
    expect_contains(user_error([&] { load_tokenizer(path); }), {"cannot read " + path.substr(0, 40)});
}

TEST(BadTokenizerJson, IsRefusedByPlace) {
  const auto refuses = [](const std::function<void(Json&)>& change, const std::vector<std::string>& parts) {
    const std::string message = json_error(change);
    expect_contains(message, {"t.json: "});
    expect_contains(message, parts);
  };
  refuses([](Json& f) { f["normalizer"] = {{"type", "NFKC"}}; }, {"normalizer is \"NFKC\"", "NFC"});
  refuses(
      [](Json& f) {
        f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Strip"}}}}};
      },
      {"normalizer.normalizers[0] is \"Strip\""});
  refuses(
      [](Json& f) {
        f["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Digits"}};
      },
      {"pre_tokenizer is neither a Split", "Digits of individual_digits"});
  refuses([](Json& f) { f["model"]["type"] = "Unigram"; }, {"model.type is \"Unigram\""});
  refuses([](Json& f) { f["model"]["byte_fallback"] = true; }, {"model.byte_fallback is true"});
  refuses([](Json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\w+"; },
          {"pre_tokenizer.pretokenizers[0].pattern.Regex is not a supported pattern"});
  refuses([](Json& f) { f["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "MergedWithNext"; },
          {"behavior is"});
  refuses([](Json& f) { f["pre_tokenizer"] = {{"type", "Metaspace"}}; }, {"pre_tokenizer is \"Metaspace\""});
  refuses([](Json& f) { f["decoder"]["type"] = "Metaspace"; }, {"decoder.type is \"Metaspace\""});
  refuses([](Json& f) { f["post_processor"]["type"] = "BertProcessing"; },
          {"post_processor is \"BertProcessing\""});
  refuses([](Json& f) { f["truncation"] = {{"max_length", 8}}; }, {"truncation is {\"max_length\":8}"});
  refuses([](Json& f) { f["added_tokens"][0]["lstrip"] = true; }, {"added_tokens[0].lstrip is true"});
  refuses([](Json& f) { f["added_tokens"][0]["id"] = 1; },
          {"added_tokens[0] gives \"<|endoftext|>\" the id 1"});
  refuses([](Json& f) { f["added_tokens"][2]["id"] = 7; },
          {"added_tokens[2] has the id 7, which belongs to another"});
  // The library `tokenizers` would still assign the id 900.
  refuses([](Json& f) { f["added_tokens"][2]["id"] = 905; },
          {"added_tokens[2] gives \"<|tool|>\" the id 905", "the next id is 900"});
  refuses([](Json& f) { f["added_tokens"][2]["id"] = 1 << 30; }, {"is too large for"});
  refuses([](Json& f) { f["model"]["vocab"]["zzz"] = 7; }, {"model.vocab gives the id 7 to both"});
  refuses([](Json& f) { f["model"]["vocab"]["z z"] = 905; }, {"not spelled in GPT-2's alphabet"});
  refuses([](Json& f) { f["model"]["vocab"]["zzz"] = "7"; }, {"model.vocab gives \"zzz\" the id \"7\""});
  refuses([](Json& f) { f["model"]["merges"][3] = "a"; }, {"model.merges[3] is not two tokens"});
  refuses([](Json& f) { f["model"]["merges"][3] = {"a", "b", "c"}; }, {"model.merges[3] is not two tokens"});
  refuses(
      [](Json& f) {
        f["model"]["merges"][3] = {"q", "q"};
      },
      {"model.merges[3] merges \"q\" and \"q\", but \"qq\""});
  refuses([](Json& f) { f["model"]["merges"][3] = f["model"]["merges"][1]; },
          {"model.merges[3]", "a second time"});
  // A merge with an empty token would be a cycle, because the result is the token itself.
  refuses([](Json& f) { f["model"]["merges"][3] = {"a", ""}; }, {"model.merges[3] merges an empty token"});
  refuses([](Json& f) { f["post_processor"]["special_tokens"]["<|begin|>"]["ids"] = {9000}; },
          {"the token id 9000"});
  refuses([](Json& f) { f.erase("model"); }, {"model is missing"});
  EXPECT_EQ(user_error([] { tokenizer_from_json("{\"a\":[1,}", "t.json"); }),
            "t.json is not valid JSON: damaged at byte 9");
  expect_contains(user_error([] { tokenizer_from_json(std::string(100000, '['), "t.json"); }), {"t.json"});
}

TEST(BadTokenizerFiles, AreRefusedByLine) {
  const TemporaryDirectory folder;
  const auto message_for = [&](const std::string& text) {
    write_text(folder / "gpt2.tiktoken", text);
    return user_error([&] { load_tokenizer(folder / "gpt2.tiktoken"); });
  };
  expect_contains(message_for("YQ== 0\nYg= 1\n"),
                  {"gpt2.tiktoken: line 2 does not begin with a token in base64"});
  expect_contains(message_for("YQ== 0\nYg== x\n"), {"line 2 has no id"});
  expect_contains(message_for("YQ== 0\nYg== 0\n"), {"line 2 gives the id 0 a second time"});
  expect_contains(message_for("YQ== 0\nYQ== 1\n"), {"the ids 0 and 1 have the same token"});
  expect_contains(message_for("YQ== 0\nYg== 4000000000\n"),
                  {"line 2 gives the id 4000000000, which is too large"});
  expect_contains(message_for(""), {"has no tokens"});
  write_text(folder / "other.tiktoken", "YQ== 0\n");
  expect_contains(user_error([&] { load_tokenizer(folder / "other.tiktoken"); }), {"its pattern is unknown"});
  // Whisper's file has an empty token, which is refused. Its name therefore does not select a pattern.
  write_text(folder / "multilingual.tiktoken", "YQ== 0\n");
  expect_contains(user_error([&] { load_tokenizer(folder / "multilingual.tiktoken"); }),
                  {"its pattern is unknown"});
  expect_contains(user_error([&] { load_tokenizer(folder.path()); }),
                  {"neither tokenizer.json nor vocab.json"});
  expect_contains(user_error([&] { load_tokenizer(folder / "none"); }), {"none does not exist"});
  write_text(folder / "vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  expect_contains(user_error([&] { load_tokenizer(folder.path()); }), {"there is no", "merges.txt"});
  write_text(folder / "merges.txt", "#version: 0.2\na b\nb a\n");
  expect_contains(user_error([&] { load_tokenizer(folder.path()); }),
                  {"merges.txt: line 3 merges \"b\" and \"a\""});
  write_text(folder / "merges.txt", "#version: 0.2\na b\nab\n");
  expect_contains(user_error([&] { load_tokenizer(folder.path()); }),
                  {"merges.txt: line 3 is not two tokens"});
  write_text(folder / "merges.txt", "#version: 0.2\na b\n");
  EXPECT_EQ(load_tokenizer(folder.path())->encode("abba"), (std::vector<int32_t>{2, 1, 0}));
  expect_contains(user_error([&] { load_tokenizer(folder.path())->encode("abc", "x.txt"); }),
                  {"x.txt has the byte 0x63", "no token in the vocabulary"});
  write_text(folder / "tokenizer_config.json", R"({"eos_token": {"content": "b"}, "bos_token": null})");
  EXPECT_EQ(load_tokenizer(folder.path())->end_of_text(), 1);
  write_text(folder / "tokenizer_config.json", R"({"eos_token": "</s>"})");
  expect_contains(user_error([&] { load_tokenizer(folder.path()); }),
                  {"tokenizer_config.json: eos_token names the token \"</s>\""});
}

/// Mutations of a text: cuts, and bytes that are changed, moved, doubled or left out. A file that is read
/// must still encode, or it is refused.
class Mutations {
 public:
  uint32_t draw(size_t below) {
    state_ = state_ * 6364136223846793005 + 1442695040888963407;
    return static_cast<uint32_t>((state_ >> 33) % below);
  }

  std::string of(std::string text) {
    for (uint32_t changes = 1 + draw(3); changes > 0 && !text.empty(); --changes) {
      const size_t at = draw(text.size());
      const size_t bytes = std::min<size_t>(1 + draw(12), text.size() - at);
      const std::string part = text.substr(at, bytes);
      switch (draw(6)) {
        case 0:
          text[at] = static_cast<char>(draw(256));
          break;
        case 1:
          text.erase(at, bytes);
          break;
        case 2:
          text.insert(draw(text.size()), part);
          break;
        case 3:
          text[at] = "0123456789{}[]\",: =-eE\\\n"[draw(24)];
          break;
        case 4:
          text.replace(at, bytes, text.substr(draw(text.size()), bytes));
          break;
        default:
          if (draw(8) == 0) text.resize(at);
      }
    }
    return text;
  }

 private:
  uint64_t state_ = 7;
};

int mutation_count() {
  const char* const asked = std::getenv("LOCKSTEP_TEST_MUTATIONS");
  return asked ? std::atoi(asked) : 1000;
}

/// Returns a file with fewer tokens, so that ten thousand mutations take seconds. It keeps only the merges
/// whose results it still has.
std::string small_json() {
  Json file = Json::parse(read_text(golden_tokenizers + "llama3.json"));
  Json& merges = file["model"]["merges"];
  Json vocabulary;
  Json kept = Json::array();
  for (const auto& [token, id] : file["model"]["vocab"].items())
    if (id < 290) vocabulary[token] = id;
  for (const Json& merge : merges) {
    const auto joined = merge[0].get<std::string>() + merge[1].get<std::string>();
    if (vocabulary.contains(joined)) kept.push_back(merge);
  }
  file["model"]["vocab"] = vocabulary;
  merges = kept;
  file["added_tokens"][2]["id"] = 290;
  return file.dump();
}

void expect_read_or_refused(const std::function<std::shared_ptr<const Tokenizer>()>& load, int& read) {
  try {
    const auto tokenizer = load();
    ++read;
    const std::string text = "Hello, it's 1234!\n\n \u4f60 <|endoftext|>";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  } catch (const UserError&) {
  }
}

TEST(BadTokenizerFiles, MutatedAreReadOrRefused) {
  Mutations mutations;
  const TemporaryDirectory folder;
  const std::string json = small_json();
  const std::string tiktoken = read_text(golden_tokenizers + "cl100k_small.tiktoken").substr(0, 4000);
  const std::string vocabulary = read_text(golden_tokenizers + "gpt2/vocab.json");
  const std::string merges = read_text(golden_tokenizers + "gpt2/merges.txt");
  int read = 0;
  ASSERT_NO_THROW(tokenizer_from_json(json, "t.json"));
  for (int i = 0; i < mutation_count(); ++i) {
    expect_read_or_refused([&] { return tokenizer_from_json(mutations.of(json), "t.json"); }, read);
    write_text(folder / "cl100k.tiktoken", mutations.of(tiktoken));
    expect_read_or_refused([&] { return load_tokenizer(folder / "cl100k.tiktoken"); }, read);
    write_text(folder / "vocab.json", i % 2 ? mutations.of(vocabulary) : vocabulary);
    write_text(folder / "merges.txt", i % 2 ? merges : mutations.of(merges));
    expect_read_or_refused([&] { return load_tokenizer(folder.path()); }, read);
  }
  // Both outcomes must happen, or the mutations have no effect.
  EXPECT_GT(read, mutation_count() / 10);
  EXPECT_LT(read, mutation_count() * 3);
}

}  // namespace
}  // namespace lockstep
