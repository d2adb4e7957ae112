// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/tiktoken_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <sstream>
#include <tuple>
#include <unordered_map>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/text.h"
#include "lockstep/json/json_field.h"
#include "lockstep/tokenizer/utf8.h"

namespace lockstep {
namespace {

constexpr size_t longest_token = 1024;
constexpr size_t most_parameters_bytes = size_t{64} << 10;
constexpr int llama3_vocabulary = 128256;  // with 256 special tokens

struct KnownFile {
  const char* name;
  SplitRule rule;
  size_t tokens;
};

const std::array<KnownFile, 6> known_files = {{{"gpt2", SplitRule::gpt2, 50256},
                                               {"r50k", SplitRule::gpt2, 50256},
                                               {"p50k", SplitRule::gpt2, 50280},
                                               {"cl100k", SplitRule::cl100k, 100256},
                                               {"llama3", SplitRule::llama3, 128000},
                                               {"o200k", SplitRule::o200k, 199998}}};

const KnownFile& known_file(size_t tokens, const std::string& origin) {
  const std::string name = std::filesystem::path(origin).filename().string();
  for (const KnownFile& known : known_files)
    if (tokens == known.tokens) return known;
  for (const KnownFile& known : known_files)
    if (name.starts_with(known.name)) return known;
  throw UserError(
      concat(origin, " has ", tokens, " tokens, so its pattern is unknown; if it is that of GPT-2, ",
             "cl100k, Llama 3 or o200k, start the file's name with gpt2, cl100k, llama3 or o200k"));
}

constexpr std::string_view base64_letters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes base64 with padding (RFC 4648). Returns nothing if the text is not valid.
std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return {};
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t value = i + padding < text.size() ? base64_letters.find(text[i]) : 0;
    if (value == std::string_view::npos) return {};
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (i % 4 != 3) continue;
    for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(bits >> shift & 255);
    bits = 0;
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

void read_line(std::string_view line, const std::string& place, BytePairModel& model, size_t most_ids) {
  const size_t blank = std::min(line.find(' '), line.size());
  const auto bytes = decode_base64(line.substr(0, blank));
  require(bytes.has_value(), place, " does not begin with a token in base64");
  const auto id = number_in<uint32_t>(line.substr(std::min(blank + 1, line.size())));
  require(id.has_value(), place, " has no id after the token");
  require(*id < most_ids, place, " gives the id ", *id, ", which is too large for the number of lines");
  require(bytes->size() <= longest_token, place, " has a token of ", bytes->size(), " bytes");
  if (*id >= model.tokens.size()) model.tokens.resize(*id + 1);
  require(model.tokens[*id].empty(), place, " gives the id ", *id, " a second time");
  model.tokens[*id] = *bytes;
}

/// Fills model.merges: every way to cut a token into two other tokens is a merge.
void find_merges(BytePairModel& model, const std::string& origin) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    if (model.tokens[id].empty()) continue;
    const auto [other, is_new] = ids.emplace(model.tokens[id], static_cast<int32_t>(id));
    require(is_new, origin, ": the ids ", other->second, " and ", id, " have the same token");
  }
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    const std::string_view token = model.tokens[id];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut));
      const auto right = left == ids.end() ? left : ids.find(token.substr(cut));
      if (right == ids.end()) continue;
      const auto rank = static_cast<int32_t>(id);
      model.merges.push_back({left->second, right->second, rank, rank});
    }
  }
  std::ranges::sort(model.merges, {},
                    [](const Merge& merge) { return std::tuple(merge.rank, merge.left, merge.right); });
}

void add_special(BytePairModel& model, size_t id, const std::string& content) {
  if (id >= model.tokens.size()) model.tokens.resize(id + 1);
  expect(model.tokens[id].empty(), "the id ", id, " is in use");
  model.tokens[id] = content;
  model.added.push_back({.id = static_cast<int32_t>(id), .content = content, .is_special = true});
}

/// Returns whether Meta's params.json next to a file is that of Llama 3.1 or later, which scale positions.
/// Returns nothing without such a file.
std::optional<bool> is_after_llama30_beside(const std::filesystem::path& origin) {
  const std::string path = (origin.parent_path() / "params.json").string();
  const std::optional<std::string> text = read_file(path);
  if (!text) return {};
  const JsonField<nlohmann::json> file(*text, path, most_parameters_bytes);
  if (!file.has("vocab_size") || file["vocab_size"].json() != llama3_vocabulary) return {};
  return file["use_scaled_rope"].flag();
}

/// Returns whether a file is that of Llama 3.1 or later. Versions have equal files, and special tokens with
/// other ids.
bool is_after_llama30(const std::string& origin) {
  std::smatch version;
  const std::string name = std::filesystem::path(origin).filename().string();
  if (std::regex_search(name, version, std::regex(R"(^llama-?3\.(\d))", std::regex::icase)))
    return version[1] != "0";
  const std::optional<bool> beside = is_after_llama30_beside(origin);
  require(beside.has_value(), origin,
          " is the file of Llama 3.0 and of later versions, which give special tokens other ids: <|eom_id|> "
          "is 128008 since 3.1; start the file's name with llama3.0 or llama3.1, or use a tokenizer.json");
  return *beside;
}

/// Returns the special tokens of Llama 3.0 or, as llama_models 0.3 has them, of later versions.
std::vector<std::string> llama3_names(bool is_after_30) {
  std::vector<std::string> names{"<|begin_of_text|>", "<|end_of_text|>"};
  const auto reserve = [&names](int from, int to) {
    for (int i = from; i < to; ++i) names.push_back(concat("<|reserved_special_token_", i, "|>"));
  };
  const auto add = [&names](std::initializer_list<const char*> more) {
    names.insert(names.end(), more.begin(), more.end());
  };
  reserve(0, 2);
  is_after_30 ? add({"<|finetune_right_pad_id|>", "<|step_id|>"}) : reserve(2, 4);
  add({"<|start_header_id|>", "<|end_header_id|>"});
  is_after_30 ? add({"<|eom_id|>"}) : reserve(4, 5);
  add({"<|eot_id|>"});
  if (is_after_30) add({"<|python_tag|>", "<|image|>"});
  reserve(is_after_30 ? 2 : 5, is_after_30 ? 246 : 251);
  return names;
}

void add_llama3_tokens(BytePairModel& model, bool is_whole, bool is_after_30) {
  const size_t first = model.tokens.size();
  std::vector<std::string> names = llama3_names(is_after_30);
  if (is_whole)
    model.before = {static_cast<int32_t>(first)};
  else
    names.resize(2);
  for (size_t i = 0; i < names.size(); ++i) add_special(model, first + i, names[i]);
}

/// Adds the special tokens that the library of each known file adds in code.
void add_special_tokens(BytePairModel& model, bool is_whole) {
  const size_t next = model.tokens.size();
  if (model.rule == SplitRule::cl100k && is_whole) {
    add_special(model, 100257, "<|endoftext|>");
    add_special(model, 100258, "<|fim_prefix|>");
    add_special(model, 100259, "<|fim_middle|>");
    add_special(model, 100260, "<|fim_suffix|>");
    add_special(model, 100276, "<|endofprompt|>");
  } else if (model.rule == SplitRule::o200k && is_whole) {
    add_special(model, 199999, "<|endoftext|>");
    add_special(model, 200018, "<|endofprompt|>");
  } else {
    // p50k leaves the token's id in GPT-2 unused.
    const size_t usual = 50256;
    const bool is_free = usual < next && model.tokens[usual].empty();
    add_special(model, is_free ? usual : next, "<|endoftext|>");
  }
}

}  // namespace

BytePairModel read_tiktoken(std::string_view text, const std::string& origin) {
  BytePairModel model;
  const size_t lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  size_t number = 0;
  size_t tokens = 0;
  std::istringstream stream{std::string(without_byte_order_mark(text))};
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();
    ++number;
    if (line.empty()) continue;
    read_line(line, concat(origin, ": line ", number), model, 2 * lines + 1024);
    ++tokens;
  }
  require(tokens > 0, origin, " has no tokens");
  const KnownFile& known = known_file(tokens, origin);
  model.rule = known.rule;
  model.takes_whole_pieces = true;
  const bool is_whole = tokens == known.tokens && model.tokens.size() <= tokens + 1;
  const bool is_llama3 = model.rule == SplitRule::llama3;
  const bool is_after_30 = is_llama3 && is_whole && is_after_llama30(origin);
  find_merges(model, origin);
  is_llama3 ? add_llama3_tokens(model, is_whole, is_after_30) : add_special_tokens(model, is_whole);
  return model;
}

}  // namespace lockstep
