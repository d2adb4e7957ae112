// SPDX-License-Identifier: Apache-2.0
// Folders that are damaged, or that hold models Lockstep does not compute.
#include "huggingface/bad_folder.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/dist/parameters_hash.h"
#include "lockstep/huggingface/model_layout.h"
#include "lockstep/huggingface/source_model.h"
#include "lockstep/huggingface/writer.h"
#include "lockstep/models/family.h"
#include "lockstep/nn/generate.h"
#include "lockstep/parameters/parameter_space.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/safetensors.h"
#include "lockstep/tokenizer/char_tokenizer.h"
#include "lockstep/writing/write_texts.h"
#include "tests/support/http_server.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/user_error.h"

namespace lockstep {
namespace {

bool is_tied(const ModelDescription& model) { return model.family->head(model).is_tied; }

class BadIndex : public BadFolder {
 protected:
  BadIndex() : BadFolder("untied") {}
  std::string with_index(const std::function<void(Json&)>& change) const {
    Json index = Json::parse(read_text(path_of(index_file)));
    change(index);
    write(index_file, index.dump());
    return problem();
  }
};

TEST_F(BadFolder, WhatIsNotComputedIsNamed) {
  const std::string config = read_text(path_of("config.json"));
  const std::vector<std::pair<const char*, Json>> fields = {{"model_type", "gemma"},
                                                            {"activation_function", "relu"},
                                                            {"scale_attn_weights", false},
                                                            {"scale_attn_by_inverse_layer_idx", true},
                                                            {"reorder_and_upcast_attn", true},
                                                            {"add_cross_attention", true},
                                                            {"n_inner", 64},
                                                            {"layer_norm_epsilon", 1e-6},
                                                            {"layer_norm_epsilon", "small"},
                                                            {"n_head", 5},
                                                            {"n_head", 0},
                                                            {"n_head", "two"},
                                                            {"n_layer", -1},
                                                            {"n_layer", 1e18},
                                                            {"n_layer", 18446744073709551615ull},
                                                            {"vocab_size", nullptr},
                                                            {"vocab_size", int64_t{1} << 31},
                                                            {"n_positions", 2.5},
                                                            {"tie_word_embeddings", "yes"}};
  for (const auto& [name, value] : fields) {
    const std::string said = with_field(name, value);
    expect_contains(said, {"config.json", name});
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    write("config.json", config);
  }
  EXPECT_EQ(with_field("n_inner", 128), "(nothing was thrown)") << "four times n_embd";
  for (const char* text : {"", "[1, 2]", "{\"model_type\": \"gpt2\"", "\xff\xfe", "null"}) {
    write("config.json", text);
    expect_contains(problem(), {"config.json"});
  }
}

TEST_F(BadFolder, AnotherShapeThanItsConfigurationIsNamed) {
  expect_contains(with_field("n_layer", 3), {"model.safetensors", "there is no tensor h.2."});
  expect_contains(with_field("n_layer", 1),
                  {"model.safetensors", "tensor h.1.", "does not belong to the GPT-2"});
  expect_contains(with_config([](Json& config) {
                    config["n_layer"] = 2;
                    config["vocab_size"] = 68;
                  }),
                  {"wte.weight has the shape [67, 32]", "[68, 32]"});
  expect_contains(with_config([](Json& config) {
                    config["vocab_size"] = 67;
                    config["tie_word_embeddings"] = false;
                  }),
                  {"there is no tensor lm_head.weight"});
}

TEST_F(BadFolder, TensorsOfAnotherKindAreNamed) {
  SafeTensors content{.tensors = {}, .metadata = {}};
  const ModelFolder model(open_store(folder()));
  for (const auto& [name, place] : model.tensors())
    content.tensors.push_back({name, zeros(place.shape, name == "wpe.weight" ? DType::f64 : DType::f32)});
  write("model.safetensors", to_safetensors(content));
  expect_contains(problem(), {"model.safetensors", "tensor wpe.weight", "f64", "is not supported"});
  for (NamedTensor& tensor : content.tensors) {
    if (tensor.name != "wpe.weight") continue;
    tensor.tensor = zeros({16, 32});
    content.tensors.push_back({"transformer.wpe.weight", tensor.tensor});
    break;
  }
  write("model.safetensors", to_safetensors(content));
  expect_contains(problem(), {"wpe.weight", "twice"});
  content.tensors.back().name = "a\nb";
  write("model.safetensors", to_safetensors(content));
  expect_contains(problem(), {"tensor a?b does not belong"});
  // A tied head may be stored too, and may be stored alone.
  content.tensors.pop_back();
  content.tensors.push_back({"lm_head.weight", zeros({67, 32})});
  write("model.safetensors", to_safetensors(content));
  EXPECT_EQ(problem(), "(nothing was thrown)");
  std::erase_if(content.tensors, [](const NamedTensor& tensor) { return tensor.name == "wte.weight"; });
  write("model.safetensors", to_safetensors(content));
  EXPECT_EQ(problem(), "(nothing was thrown)");
}

TEST_F(BadFolder, ABufferThatIsNoMaskOfALayerIsNamed) {
  SafeTensors content{.tensors = {}, .metadata = {}};
  const ModelFolder model(open_store(folder()));
  for (const auto& [name, place] : model.tensors()) content.tensors.push_back({name, zeros(place.shape)});
  content.tensors.push_back({"transformer.h.1.attn.masked_bias", zeros({})});
  write("model.safetensors", to_safetensors(content));
  EXPECT_EQ(problem(), "(nothing was thrown)");
  for (const std::string name : {"decoder.attn.bias", "h.2.attn.masked_bias", "transformer.h.99.attn.bias",
                                 "h.01.attn.bias", "h.-1.attn.bias"}) {
    content.tensors.back().name = name;
    write("model.safetensors", to_safetensors(content));
    expect_contains(problem(), {"tensor " + name + " does not belong"});
  }
}

// transformers 5 keeps both, too. One value of a head in bf16 differs.
TEST_F(BadFolder, ATiedHeadWithOtherValuesIsUntied) {
  SafeTensors content{.tensors = {}, .metadata = {}};
  const ModelFolder model(open_store(folder()));
  for (const auto& [name, place] : model.tensors()) content.tensors.push_back({name, full(place.shape, 1)});
  const Tensor head = full({67, 32}, 1, DType::bf16);
  content.tensors.push_back({"lm_head.weight", head});
  write("model.safetensors", to_safetensors(content));
  EXPECT_TRUE(is_tied(SourceModel(folder(), World::alone()).description()));
  static_cast<uint16_t*>(head.view().data)[67 * 32 - 1] = 0x4000;  // 2
  write("model.safetensors", to_safetensors(content));
  testing::internal::CaptureStderr();
  const SourceModel source(folder(), World::alone());
  expect_contains(testing::internal::GetCapturedStderr(),
                  {"config.json ties the head", "other values for lm_head.weight"});
  EXPECT_FALSE(is_tied(source.description()));
  convert_model(source, path_of("converted"), DType::f32);
  const ModelFolder converted(open_store(path_of("converted")));
  EXPECT_FALSE(is_tied(converted.description()));
  const auto value_at_end = [&](const char* name) {
    float value = 0;
    const std::string bytes = converted.read(converted.tensors().at(name), 67 * 32 - 1, 67 * 32);
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  };
  EXPECT_EQ(value_at_end("lm_head.weight"), 2.0F);
  EXPECT_EQ(value_at_end("wte.weight"), 1.0F);
}

TEST_F(BadFolder, FilesThatAreCutOrGrownAreNamed) {
  const std::string whole = read_text(path_of("model.safetensors"));
  for (const size_t length :
       {size_t{0}, size_t{7}, size_t{8}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    write("model.safetensors", whole.substr(0, length));
    expect_contains(problem(), {"model.safetensors", "truncated"});
  }
  write("model.safetensors", whole + "\n");
  expect_contains(problem(), {"model.safetensors", "after its last tensor"});
  write("model.safetensors", "\xff\xff\xff\xff\xff\xff\xff\x7f" + whole.substr(8));
  expect_contains(problem(), {"model.safetensors", "its header would have"});
  fs::remove(path_of("model.safetensors"));
  expect_contains(problem(), {"model.safetensors is missing", index_file});
  fs::remove(path_of("config.json"));
  expect_contains(problem(), {"neither a config.json", "nor a snapshot"});
}

TEST_F(BadFolder, AMissingFolderIsToldFromOneWithoutAModel) {
  const auto problem_of = [](const std::string& address) {
    return user_error([&] { SourceModel(address, World::alone()); });
  };
  expect_contains(problem_of("openai-community/gpt2-xl"),
                  {"openai-community/gpt2-xl does not exist", "train_gpt", "git clone https://"});
  expect_contains(problem_of("file://" + path_of("runs/typo")), {"typo does not exist"});
  expect_contains(problem_of(path_of("model.safetensors")), {"model.safetensors is a file", "folder"});
  expect_contains(problem_of(path_of("config.json/x")), {"does not exist"});
  expect_contains(user_error([&] { load_writer(path_of("typo")); }), {"does not exist"});
}

TEST_F(BadIndex, NamesOnlyFilesOfTheFolder) {
  EXPECT_EQ(problem(), "(nothing was thrown)");
  const std::string index = read_text(path_of(index_file));
  const std::string first = "transformer.wte.weight";
  for (const char* file :
       {"../model.safetensors", "/etc/passwd", "a/b.safetensors", ".safetensors", "x.bin", ""}) {
    expect_contains(with_index([&](Json& json) { json["weight_map"][first] = file; }),
                    {index_file, first, "must be the name of a safetensors file"});
    write(index_file, index);
  }
  expect_contains(with_index([&](Json& json) { json["weight_map"][first] = 7; }), {index_file, first});
  write(index_file, index);
  expect_contains(with_index([&](Json& json) { json["weight_map"][first] = "another.safetensors"; }),
                  {"another.safetensors", "missing"});
  write(index_file, index);
  expect_contains(
      with_index([&](Json& json) { json["weight_map"][first] = "model-00004-of-00004.safetensors"; }),
      {"tensor " + first, "does not expect it there"});
  write(index_file, index);
  expect_contains(
      with_index([&](Json& json) { json["weight_map"]["h.9.x"] = "model-00004-of-00004.safetensors"; }),
      {"there is no tensor h.9.x"});
  for (const char* text : {"", "{}", "{\"weight_map\": {}}", "{\"weight_map\": [1]}"}) {
    write(index_file, text);
    expect_contains(problem(), {index_file});
  }
}

/// A change may lead to no other error than a UserError, and to no invalid memory access (under asan).
TEST_F(BadIndex, MutationsAreReadOrRefused) {
  const char* wish = std::getenv("LOCKSTEP_MUTATIONS");
  const int count = wish != nullptr ? std::atoi(wish) : 1000;
  const std::vector<std::string> files = {"config.json", index_file, "model-00001-of-00004.safetensors",
                                          "model-00004-of-00004.safetensors"};
  std::mt19937 random(4);
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const std::string& file = files[random() % files.size()];
    const std::string whole = read_text(path_of(file));
    // Only the header of a safetensors file is interpreted. The values may be anything.
    const size_t reach = std::min<size_t>(whole.size(), 3000);
    std::string bytes = whole;
    for (size_t change = random() % 3 + 1; change > 0; --change) {
      const size_t at = random() % std::min(reach, bytes.size());
      switch (random() % 5) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 2:
          bytes.erase(at, random() % 9 + 1);
          break;
        case 3:
          bytes.insert(at, bytes.substr(at / 2, random() % 40 + 1));
          break;
        default:
          bytes[at] = "0123456789-\"[]{}:,"[random() % 18];
          break;
      }
    }
    write(file, bytes);
    const std::string said = problem();
    const bool is_refused = said != "(nothing was thrown)";
    EXPECT_TRUE(!is_refused || said.find(folder()) != std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    refused += is_refused ? 1 : 0;
    write(file, whole);
  }
  EXPECT_GT(refused, count / 2);
  EXPECT_EQ(problem(), "(nothing was thrown)") << "the restored folder has no problem";
}

TEST_F(BadFolder, ATokenizerBesideGoesAlongAndWrites) {
  EXPECT_EQ(tokenizer_of(SourceModel(folder(), World::alone())), nullptr);
  std::string characters;
  for (char c = '0'; c <= 'r'; ++c) characters += c;
  const CharTokenizer tokenizer(characters);
  ASSERT_EQ(tokenizer.vocabulary_size(), 67);
  write("tokenizer.json", tokenizer.to_json());
  convert_model(SourceModel(folder(), World::alone()), folder() + "/half", DType::f16);
  EXPECT_EQ(read_text(path_of("half/tokenizer.json")), tokenizer.to_json());
  const Writer writer = load_writer(path_of("half"));
  EXPECT_EQ(writer.model->context_length(), 16);
  EXPECT_EQ(write_text(*writer.model, *writer.tokenizer, "abc", {.tokens = 3}).size(), 6u);
  const uint64_t hash = parameters_hash(writer.model->parameters());
  run_ranks(2, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    const Writer each = load_writer(path_of("half"), world, DType::bf16);
    EXPECT_EQ(parameters_hash(each.model->parameters()), hash) << "precision changes only the copies";
    EXPECT_EQ(each.model->parameters()[0].tensor.compute_dtype(), DType::bf16);
    EXPECT_EQ(each.tokenizer != nullptr, world.is_first());
  });
  write("tokenizer.json", "{}");
  expect_contains(user_error([&] { load_writer(folder()); }), {"tokenizer.json"});
  run_ranks(2, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    expect_contains(user_error([&] { load_writer(folder(), world); }), {"tokenizer.json"});
  });
}

/// A web address may be https too. One server supports ranges and one does not.
TEST_F(BadIndex, AWebAddressIsReadLikeAFolder) {
  for (const bool knows_ranges : {true, false}) {
    HttpServer server([&](const std::string& request) -> std::string {
      const size_t begin = request.find("/m/") + 3;
      const std::string path = path_of(request.substr(begin, request.find(' ', begin) - begin));
      if (!fs::exists(path)) return http_reply("404 Not Found");
      const std::string bytes = read_text(path);
      const size_t range = request.find("Range: bytes=");
      if (!knows_ranges || range == std::string::npos) return http_reply("200 OK", bytes);
      char* end = nullptr;
      const size_t first = std::strtoull(request.c_str() + range + 13, &end, 10);
      const size_t last = std::strtoull(end + 1, nullptr, 10);
      if (first >= bytes.size()) return http_reply("416 Range Not Satisfiable");
      const std::string part = bytes.substr(first, last - first + 1);
      return http_reply(
          "206 Partial Content", part,
          concat("Content-Range: bytes ", first, "-", first + part.size() - 1, "/", bytes.size(), "\r\n"));
    });
    const SourceModel there(server.url() + "/m/", World::alone()), here(folder(), World::alone());
    EXPECT_EQ(there.hash(), here.hash());
    EXPECT_TRUE(there.texts().contains("generation_config.json"));
    expect_contains(user_error([&] { SourceModel(server.url() + "/none", World::alone()); }),
                    {"/none/config.json is missing"});
  }
}

}  // namespace
}  // namespace lockstep
