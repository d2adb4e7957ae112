// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <iostream>
#include <sstream>

#include "comm/world.h"
#include "config/command_line.h"
#include "core/error.h"
#include "core/text.h"
#include "tokenizer/load_tokenizer.h"

using namespace lockstep;

namespace {

std::string read_all(std::istream& in) {
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.is_open(), "cannot read ", path);
  return read_all(file);
}

/// Returns the text of an option, or the standard input for "-".
std::string text_of(const std::string& option) { return option == "-" ? read_all(std::cin) : option; }

void append_ids(const std::vector<int32_t>& ids, std::string& line) {
  const size_t first = line.size();
  for (int32_t id : ids) {
    if (line.size() > first) line += ' ';
    line += std::to_string(id);
  }
  line += '\n';
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

/// Returns a line of ids for each text. Each text ends with a NUL, so a check can encode millions at once.
std::string ids_of_texts(const Tokenizer& tokenizer, const std::string& texts, const std::string& source) {
  std::string lines;
  for (size_t begin = 0; begin < texts.size();) {
    const size_t end = std::min(texts.find('\0', begin), texts.size());
    append_ids(tokenizer.encode(std::string_view(texts).substr(begin, end - begin), source), lines);
    begin = end + 1;
  }
  return lines;
}

struct Request {
  // An argument cannot contain a NUL, so this value means that the option was not given.
  static constexpr std::string_view none{"\0", 1};

  std::string tokenizer;
  std::string ids{none}, decode{none}, ids_of_file{none}, ids_of_texts{none};
  bool special = false;
  bool json = false;
};

std::string answer(const Request& request) {
  const auto is_given = [](const std::string& option) { return option != Request::none; };
  const int given = is_given(request.ids) + is_given(request.decode) + is_given(request.ids_of_file) +
                    is_given(request.ids_of_texts) + request.json;
  require(given == 1, "give exactly one of --ids, --decode, --ids-of-file, --ids-of-texts and --json");
  const auto tokenizer = load_tokenizer(request.tokenizer);
  if (request.json) return tokenizer->to_json();
  if (is_given(request.decode)) {
    const std::string text =
        tokenizer->decode(parse_ids(text_of(request.decode), tokenizer->vocabulary_size()));
    return request.decode == "-" ? text : text + "\n";
  }
  if (is_given(request.ids_of_texts))
    return ids_of_texts(*tokenizer, read_file(request.ids_of_texts), request.ids_of_texts);
  const bool is_file = is_given(request.ids_of_file);
  std::vector<int32_t> ids = is_file ? tokenizer->encode(read_file(request.ids_of_file), request.ids_of_file)
                                     : tokenizer->encode(text_of(request.ids), "--ids");
  if (request.special) ids = tokenizer->with_special_tokens(std::move(ids));
  std::string line;
  append_ids(ids, line);
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Converts a text to the ids of its tokens, and back");
  Request request;
  line.add("--tokenizer", request.tokenizer, "tokenizer.json, vocab.json, a *.tiktoken file, or a folder")
      .required();
  line.add("--ids", request.ids, "print the ids of this text; - reads the standard input");
  line.add("--decode", request.decode, "print the text of these ids, \"1 2 3\"; - reads the standard input");
  line.add("--ids-of-file", request.ids_of_file, "print the ids of a file's text");
  line.add("--ids-of-texts", request.ids_of_texts,
           "print a line of ids for each text of a file; each text ends with a NUL");
  line.add_flag("--special", request.special, "add the tokens that the tokenizer puts around a text");
  line.add_flag("--json", request.json, "print the tokenizer as a tokenizer.json");
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  return run_alone([&] {
    std::cout << answer(request);
    return 0;
  });
}
