// SPDX-License-Identifier: Apache-2.0
// Keys live with the room that uses them. The sources are compared with the registered keys.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "lockstep/job/keys.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Line {
  std::string place;
  std::string code;  ///< without its comment
};

/// Returns the lines of the sources of a room. Files that declare rows are left out.
std::vector<Line> lines_of(const std::string& room) {
  std::vector<Line> lines;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(LOCKSTEP_SOURCE_DIR) / "src" / room)) {
    const std::set<std::string> endings = {".h", ".cpp", ".cu", ".cuh"};
    const std::string file = entry.path().filename().string();
    if (!endings.contains(entry.path().extension().string()) || file.ends_with("keys.cpp")) continue;
    std::ifstream stream(entry.path());
    int number = 0;
    for (std::string line; std::getline(stream, line);) {
      const size_t comment = line.find("//");
      const bool is_in_address = comment != std::string::npos && comment > 0 && line[comment - 1] == ':';
      if (!is_in_address) line = line.substr(0, comment);
      lines.push_back({concat(room, "/", file, ":", ++number), line});
    }
  }
  return lines;
}

/// Returns the texts in quotes.
std::string texts_in(const std::string& code) {
  static const std::regex text("\"((?:[^\"\\\\]|\\\\.)*)\"");
  std::string all;
  for (std::sregex_iterator found(code.begin(), code.end(), text), end; found != end; ++found)
    all += (*found)[1].str() + "\n";
  return all;
}

/// Returns the registered keys that a line of code names in its texts.
std::vector<std::string> keys_named_in(const std::string& code) {
  const std::string texts = texts_in(code);
  std::vector<std::string> named;
  for (const Key& key : job_keys().keys())
    if (const size_t at = texts.find(key.name); at != std::string::npos) {
      const char before = at > 0 ? texts[at - 1] : ' ';
      const char after = texts[at + key.name.size()];
      const auto is_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
      if (!is_of_name(before) && !is_of_name(after)) named.push_back(key.name);
    }
  return named;
}

TEST(Sources, TheLowerRoomsNameNoKey) {
  for (const char* room : {"core", "json", "program", "kernels", "tensor", "nn", "comm", "dist", "data"})
    for (const auto& [place, code] : lines_of(room))
      for (const std::string& key : keys_named_in(code))
        ADD_FAILURE() << place << " names " << key << ": call option_name() instead";
  EXPECT_EQ(keys_named_in("require(ok, \"lower train.batch_size\");"),
            std::vector<std::string>{"train.batch_size"});
  EXPECT_TRUE(keys_named_in("open(\"data.hash\"); read(\"model.safetensors\"); x.train.steps = 1;").empty());
}

/// Returns the words that keys accept.
std::set<std::string> words_of_keys() {
  std::set<std::string> words = {"auto", "char", "none", "sample", "shakespeare", "random_tokens"};
  for (const Key& key : job_keys().keys()) {
    // Presets have the names of models, which files of others also name.
    if (key.type.find(", ") == std::string::npos || key.name == "model.preset") continue;
    std::string rest = key.type + ", ";
    for (size_t end = rest.find(", "); end != std::string::npos; end = rest.find(", ")) {
      if (const std::string word = rest.substr(0, end); !word.empty()) words.insert(word);
      rest.erase(0, end + 2);
    }
  }
  return words;
}

/// Returns whether a line of code compares a value with a text that a key accepts, or a field with the name
/// of a key with any text.
bool compares_with_text(const std::string& code, const std::set<std::string>& words) {
  static const std::regex comparison("([A-Za-z0-9_]+)(?:\\(\\))? *[=!]= *\"([^\"]*)\"");
  std::smatch found;
  if (!std::regex_search(code, found, comparison)) return false;
  if (words.contains(found[2])) return true;
  for (const Key& key : job_keys().keys())
    if (found[1].str() == key.name.substr(key.name.find('.') + 1)) return true;
  return false;
}

TEST(Sources, NoConfiguredValueIsComparedWithAText) {
  const std::set<std::string> words = words_of_keys();
  EXPECT_TRUE(words.contains("HYBRID_SHARD") && words.contains("segments=K") && words.contains("gelu_erf"));
  for (const char* room : {"parameters", "nn", "models", "dist", "data", "language", "snapshot",
                           "huggingface", "train", "plan", "doctor"})
    for (const auto& [place, code] : lines_of(room))
      EXPECT_FALSE(compares_with_text(code, words))
          << place << ": " << code << "\ncompare with an enum's value";
  EXPECT_TRUE(compares_with_text("if (job.dist.shard == \"full\") return;", words));
  EXPECT_TRUE(compares_with_text("if (name != \"auto\") return;", words));
  EXPECT_TRUE(compares_with_text("return options.activation == \"gelu\";", words));
  EXPECT_FALSE(compares_with_text("if (version == \"1.0\") return;", words));
}

/// The headers of config/ are included where keys are declared and where a run's settings are resolved. Each
/// family of models declares its own keys.
TEST(Sources, FewFilesKnowTheConfiguration) {
  std::set<std::string> files;
  for (const char* folder : {"src", "apps", "bench"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(LOCKSTEP_SOURCE_DIR) / folder)) {
      const std::string path = entry.path().string();
      const bool is_of_family = entry.path().parent_path().parent_path().filename() == "models";
      const bool is_for_users = entry.path().filename() == "lockstep.h";
      if (!entry.is_regular_file() || path.find("/src/config/") != std::string::npos || is_of_family ||
          is_for_users)
        continue;
      std::ifstream stream(entry.path());
      for (std::string line; std::getline(stream, line);)
        if (line.starts_with("#include \"lockstep/config/")) files.insert(path);
    }
  EXPECT_LE(files.size(), 10U) << testing::PrintToString(files);
  EXPECT_GE(files.size(), 5U) << "no include was found";
}

}  // namespace
}  // namespace lockstep
