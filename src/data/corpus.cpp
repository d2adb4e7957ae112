// SPDX-License-Identifier: Apache-2.0
#include "data/corpus.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "data/examples.h"
#include "tokenizer/utf8.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code unreadable;
  return fs::is_regular_file(path, unreadable);
}

/// 1115394 -> "1,115,394".
std::string with_thousands(size_t number) {
  std::string digits = std::to_string(number);
  for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(static_cast<size_t>(i), 1, ',');
  return digits;
}

/// Counts the characters in pieces because code points need four times the memory of the text. Throws as
/// decode_utf8() does.
size_t count_characters(std::string_view text, const std::string& source) {
  constexpr size_t piece_bytes = size_t{1} << 20;
  size_t count = 0;
  try {
    for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
      end = next_character(text, std::min(text.size(), begin + piece_bytes));
      count += decode_utf8(text.substr(begin, end - begin), source).size();
    }
  } catch (const UserError&) {
    decode_utf8(text, source);  // its error has the position in the whole text
    throw;
  }
  return count;
}

constexpr uint64_t sample_seed = 1564;

/// The words that are drawn for a line. Each list has 16 words, so four random bits choose one.
constexpr std::string_view subjects[] = {"Ann", "Bob", "Cal", "Dot", "Eve", "Gus", "Ida", "Jon",
                                         "Kay", "Leo", "Mia", "Ned", "Pam", "Roy", "Sue", "Tom"};
constexpr std::string_view verbs[] = {"bit", "cut", "fed", "fit", "got", "had", "hid", "hit",
                                      "led", "let", "met", "put", "ran", "saw", "set", "won"};
constexpr std::string_view adjectives[] = {"apt", "big", "coy", "dry", "fat", "hot", "icy", "lax",
                                           "mad", "new", "old", "pet", "raw", "sad", "tan", "wet"};
constexpr std::string_view nouns[] = {"ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen",
                                      "jay", "kid", "moa", "owl", "pig", "ram", "sow", "yak"};

}  // namespace

std::string find_in_data_folder(const std::string& file) {
  const char* folder = std::getenv("LOCKSTEP_DATA_DIR");
  if (folder == nullptr || *folder == '\0' || file.empty()) return "";
  const fs::path path = fs::path(folder) / file;
  return is_file(path) ? path.string() : "";
}

Corpus make_corpus(const std::string& title, std::string text, const std::string& source) {
  const size_t characters = count_characters(text, concat("data.dataset: ", source));
  require(characters > 0, "data.dataset: ", source, " is empty");
  std::string description = concat(title, ", ", with_thousands(characters), " characters from ", source);
  return {.text = std::move(text), .source = source, .description = std::move(description)};
}

Corpus corpus_of_file(const std::string& name, const std::string& title, std::string text,
                      const std::string& source) {
  if (!is_jsonl(name)) return make_corpus(title, std::move(text), source);
  return {.text = std::move(text), .source = source, .description = concat("Examples from ", source)};
}

std::string read_corpus_file(const std::string& path) {
  std::error_code unreadable;
  const auto bytes = fs::file_size(path, unreadable);
  require(!unreadable, "cannot read ", path, ": ", unreadable.message());
  std::string contents(bytes, 0);
  std::ifstream file(path, std::ios::binary);
  file.read(contents.data(), static_cast<std::streamsize>(bytes));
  require(file.good(), "cannot read ", path);
  return contents;
}

namespace {

Corpus folder_corpus(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code problem;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, problem))
    if (entry.path().extension() == ".txt" && is_file(entry.path())) paths.push_back(entry.path().string());
  require(!problem, "data.dataset = ", folder, ": ", problem.message());
  require(!paths.empty(), "data.dataset = ", folder, ": there is no *.txt in this folder");
  std::ranges::sort(paths);
  std::string text;
  std::vector<size_t> ends;
  for (const std::string& path : paths) {
    text += make_corpus("Text", read_corpus_file(path), path).text;
    ends.push_back(text.size());
  }
  Corpus corpus = make_corpus(counted(std::ssize(paths), "text"), std::move(text), folder);
  corpus.ends = std::move(ends);
  return corpus;
}

}  // namespace

Corpus local_corpus(const std::string& name) {
  if (name == "sample") return make_corpus("Generated lines", SampleCorpus::text(), "the built-in sample");
  std::error_code unreadable;
  if (fs::is_directory(name, unreadable)) return folder_corpus(name);
  const std::string path = is_file(name) ? name : find_in_data_folder(name);
  require(!path.empty(), "data.dataset = ", name,
          ": there is no such file, here or in LOCKSTEP_DATA_DIR; give a path, an address, shakespeare or "
          "sample");
  return corpus_of_file(name, "Text", read_corpus_file(path), path);
}

std::string SampleCorpus::text(int64_t lines) {
  expect(lines >= 0, lines, " lines");
  std::ostringstream text;
  for (int64_t i = 0; i < lines; ++i) {
    const auto random = philox(sample_seed, {static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0});
    const auto name = subjects[random[0] >> 28], verb = verbs[random[1] >> 28],
               adjective = adjectives[random[2] >> 28], noun = nouns[random[3] >> 28];
    text << "- " << name << " " << verb << " " << adjective << " " << noun << "; " << adjective << " " << noun
         << ": " << name << "\n";
  }
  return text.str();
}

}  // namespace lockstep
