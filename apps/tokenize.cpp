// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <optional>
#include <sstream>
#include <utility>

#include "lockstep/comm/world.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/text.h"
#include "lockstep/program/command_line.h"
#include "lockstep/program/program.h"
#include "lockstep/tokenizer/load_tokenizer.h"

using namespace lockstep;

namespace {

/// Returns the text of an option, or the standard input for "-".
std::string text_of(const std::string& option) { return option == "-" ? read_input() : option; }

/// Prints a line of ids.
void print_ids(const std::vector<int32_t>& ids) {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) text += ' ';
    text += std::to_string(ids[i]);
    if (text.size() < size_t{1} << 16) continue;
    write_output(text);
    text.clear();
  }
  std::cout << text << '\n';
}

std::vector<int32_t> parse_ids(const std::string& text, int64_t vocabulary_size) {
  std::vector<int32_t> ids;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto id = number_in<int32_t>(word);
    require(id && *id >= 0 && *id < vocabulary_size, "--decode: \"", word, "\" is not an id from 0 to ",
            vocabulary_size - 1);
    ids.push_back(*id);
  }
  return ids;
}

/// Prints a line of ids for each text. Each text ends with a NUL, so a check can encode millions at once.
void print_ids_of_texts(const Tokenizer& tokenizer, const std::string& texts, const std::string& source) {
  for (size_t begin = 0; begin < texts.size();) {
    const size_t end = std::min(texts.find('\0', begin), texts.size());
    print_ids(tokenizer.encode(std::string_view(texts).substr(begin, end - begin), source));
    begin = end + 1;
  }
}

struct Request {
  std::string tokenizer;
  std::optional<std::string> ids, decode, ids_of_file, ids_of_texts;
  bool special = false;
  bool json = false;
};

void answer(const Request& request) {
  const int given = request.ids.has_value() + request.decode.has_value() + request.ids_of_file.has_value() +
                    request.ids_of_texts.has_value() + request.json;
  require(given == 1, "give exactly one of --ids, --decode, --ids-of-file, --ids-of-texts and --json");
  const auto tokenizer = load_tokenizer(request.tokenizer);
  if (request.json) {
    std::cout << tokenizer->to_json();
  } else if (request.decode) {
    std::cout << tokenizer->decode(parse_ids(text_of(*request.decode), tokenizer->vocabulary_size()))
              << (request.decode == "-" ? "" : "\n");
  } else if (request.ids_of_texts) {
    print_ids_of_texts(*tokenizer, read_named_file(*request.ids_of_texts), *request.ids_of_texts);
  } else {
    const std::optional<std::string>& file = request.ids_of_file;
    std::vector<int32_t> ids = file ? tokenizer->encode(read_named_file(*file), *file)
                                    : tokenizer->encode(text_of(*request.ids), "--ids");
    print_ids(request.special ? tokenizer->with_special_tokens(std::move(ids)) : ids);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Converts a text to the ids of its tokens, and back");
  Request request;
  line.add("--tokenizer", request.tokenizer, "tokenizer.json, vocab.json, a *.tiktoken file, or a folder",
           {.is_required = true, .is_path = true});
  line.add("--ids", request.ids, "print the ids of this text; - reads the standard input");
  line.add("--decode", request.decode, "print the text of these ids, \"1 2 3\"; - reads the standard input");
  line.add("--ids-of-file", request.ids_of_file, "print the ids of a file's text", {.is_path = true});
  line.add("--ids-of-texts", request.ids_of_texts,
           "print a line of ids for each text of a file; each text ends with a NUL", {.is_path = true});
  line.add_flag("--special", request.special, "add the tokens that the tokenizer puts around a text");
  line.add_flag("--json", request.json, "print the tokenizer as a tokenizer.json");
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  return run_alone([&] {
    answer(request);
    return 0;
  });
}
