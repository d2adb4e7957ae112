// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/corpus.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <span>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/data/corpus_files.h"
#include "lockstep/data/read_corpus.h"
#include "lockstep/program/signals.h"
#include "support/full_pipe.h"
#include "support/temporary_directory.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Returns all text of a corpus.
std::string text_of(const Corpus& corpus) {
  std::string text;
  read_corpus(corpus, 7, [&](const TextWindow& window) {
    text += window.text;
    return window.text.size();
  });
  return text;
}

class CorpusTest : public testing::Test {
 protected:
  void SetUp() override { ::unsetenv("LOCKSTEP_DATA_DIR"); }

  std::string write(const fs::path& name, const std::string& contents) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << contents;
    return (folder_ / name).string();
  }

  TemporaryDirectory temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(CorpusTest, ReadsAFile) {
  const std::string path = write("poem.txt", "sm\u00e5tt");
  const Corpus corpus = local_corpus(path);
  EXPECT_EQ(text_of(corpus), "sm\u00e5tt");
  EXPECT_EQ(corpus.source, path);
  EXPECT_EQ(describe(corpus, measure(corpus)), "Text, 5 characters from " + path);
}

TEST_F(CorpusTest, LooksIntoTheDataFolder) {
  write("data/poem.txt", "roses");
  EXPECT_EQ(find_in_data_folder("poem.txt"), "");
  ::setenv("LOCKSTEP_DATA_DIR", (folder_ / "data").c_str(), 1);
  EXPECT_EQ(text_of(local_corpus("poem.txt")), "roses");
  EXPECT_EQ(find_in_data_folder("prose.txt"), "");
}

TEST_F(CorpusTest, SampleNeedsNothing) {
  const Corpus corpus = sample_corpus();
  EXPECT_EQ(describe(corpus, measure(corpus)),
            "Generated lines, 1,024,000 characters from the built-in sample");
  EXPECT_EQ(text_of(corpus), sample_text());
}

TEST_F(CorpusTest, NamesAMissingFile) {
  const std::string path = (folder_ / "missing.txt").string();
  expect_contains(user_error([&] { local_corpus(path); }), {"dataset = " + path, "no such file"});
  expect_contains(user_error([&] { local_corpus(folder_.string()); }),
                  {"dataset = " + folder_.string(), "no *.txt in this folder"});
  expect_contains(user_error([&] { local_corpus(""); }), {"dataset = "});
}

TEST_F(CorpusTest, AFolderIsItsTextFilesByName) {
  for (const auto& [name, text] : {std::pair("b.txt", "roses"), std::pair("a.txt", "violets\r\n"),
                                   std::pair("a.md", "no text"), std::pair("c.txt", "ü")})
    write(name, text);
  const Corpus corpus = local_corpus(folder_.string());
  EXPECT_EQ(text_of(corpus), "violets\r\nrosesü");
  const CorpusFacts facts = measure(corpus);
  EXPECT_EQ(describe(corpus, facts), "3 texts, 15 characters from " + folder_.string());
  EXPECT_EQ(facts.alphabet, "\n\reilorstvü");
  // Where documents end is a part of the corpus.
  const std::vector<size_t> ends{9, 14, 16};
  const std::string text = "violets\r\nrosesü";
  Hasher hasher;
  hasher.add(std::as_bytes(std::span(text)));
  hasher.add(std::as_bytes(std::span(ends)));
  EXPECT_EQ(facts.hash, hasher.value());
  const std::string empty = write("d.txt", "");
  expect_contains(user_error([&] { measure(local_corpus(folder_.string())); }), {empty, "is empty"});
}

// Windows end anywhere in a character of two, three or four bytes.
TEST_F(CorpusTest, IsCountedInWindowsThatCutCharacters) {
  for (const std::string character : {"\u00e9", "\u20ac", "\U0001F3AD"})
    for (size_t shift = 0; shift < character.size(); ++shift) {
      std::string text(shift, 'x');
      const int64_t count = (int64_t{5} << 19) / std::ssize(character);
      for (int64_t i = 0; i < count; ++i) text += character;
      const CorpusFacts facts = measure(local_corpus(write("text.txt", text)));
      EXPECT_EQ(facts.count, std::ssize(std::string(shift, 'x')) + count);
      EXPECT_EQ(facts.bytes, std::ssize(text));
      EXPECT_EQ(facts.hash, hash_of(text));
      EXPECT_EQ(facts.alphabet, (shift > 0 ? "x" : "") + character);
    }
}

TEST_F(CorpusTest, AWindowThatIsNotUsedGrows) {
  const Corpus corpus = local_corpus(write("text.txt", std::string(1000, 'a') + "." + std::string(99, 'b')));
  std::vector<size_t> sizes;
  std::string seen;
  read_corpus(corpus, 64, [&](const TextWindow& window) {
    EXPECT_EQ(window.begin, std::ssize(seen));
    EXPECT_EQ(window.is_last, window.begin + std::ssize(window.text) == 1100);
    sizes.push_back(window.text.size());
    const size_t end = window.is_last ? window.text.size() : window.text.find('.') + 1;
    seen += window.text.substr(0, end);
    return end;
  });
  EXPECT_EQ(sizes, (std::vector<size_t>{64, 128, 256, 512, 1024, 64, 99}));
  EXPECT_EQ(seen, text_of(corpus));
}

TEST_F(CorpusTest, RefusesEmptyAndBinaryFiles) {
  const std::string empty = write("empty.txt", "");
  const std::string binary = write("binary.txt", std::string("\x7F"
                                                             "ELF\0",
                                                             5));
  expect_contains(user_error([&] { measure(local_corpus(empty)); }), {"dataset", empty, "is empty"});
  expect_contains(user_error([&] { measure(local_corpus(binary)); }),
                  {"dataset", binary, "is not text", "byte 4"});
  const std::string blank = write("blank.jsonl", "\n \n");
  expect_contains(user_error([&] { measure(local_corpus(blank)); }), {blank, "no examples"});
}

TEST_F(CorpusTest, NamesThePlaceOfAnInvalidByteDeepInAText) {
  // The last window begins with a byte that continues no character.
  for (const size_t place : {size_t{1} << 20, (size_t{3} << 20) - 1, (size_t{3} << 20) + 5}) {
    const std::string path = write("text.txt", std::string(place, 'a') + "\x80z");
    expect_contains(user_error([&] { measure(local_corpus(path)); }),
                    {"dataset: " + path + " is not text", concat("byte ", place, " does not begin")});
    const std::string cut = write("cut.txt", std::string(place, 'a') + "\xE2\x82");
    expect_contains(user_error([&] { measure(local_corpus(cut)); }), {concat("byte ", place, " does not")});
  }
}

TEST_F(CorpusTest, ExamplesAreCountedAndTheirLinesNumbered) {
  std::string lines;
  for (int i = 0; i < 40'000; ++i)
    lines += concat("{\"prompt\": \"", i, "=\", \"answer\": \"\\u00e9\\u0000\"}\r\n\n");
  const Corpus corpus = local_corpus(write("x.jsonl", lines));
  const CorpusFacts facts = measure(corpus);
  EXPECT_EQ(describe(corpus, facts), "40000 examples from " + corpus.source);
  EXPECT_EQ(facts.alphabet, "0123456789=\u00e9") << "a NUL is a matter of the tokenizer";
  EXPECT_EQ(facts.hash, hash_of(lines));
  const Corpus wrong = local_corpus(write("y.jsonl", lines + "{}"));
  expect_contains(user_error([&] { measure(wrong); }), {wrong.source + ":80001 has no keys"});
}

TEST_F(CorpusTest, ContentsTellExamplesFromText) {
  const auto kind_of = [&](const char* name, const std::string& text) {
    return local_corpus(write(name, text)).kind;
  };
  const std::string pair = "{\"id\": 1, \"prompt\": \"a\", \"answer\": \"b\"}\n";
  for (const char* name : {"a.JSONL", "a.ndjson", "a.Json", "a.txt", "no_ending"}) {
    EXPECT_EQ(kind_of(name, "\xEF\xBB\xBF\r\n" + pair + pair), Corpus::Kind::examples) << name;
    EXPECT_EQ(kind_of(name, "{\"messages\": []}\n"), Corpus::Kind::examples) << name;
  }
  for (const char* text :
       {"{\"name\": {\"text\": 1}}\n", "[Enter \"prompt\"]\n", "{ \"text\" }", "\"text\"", "{", "[1]"})
    EXPECT_EQ(kind_of("a.txt", text), Corpus::Kind::text) << text;
  expect_contains(user_error([&] { kind_of("a.json", "prose"); }), {"a.json", "a text needs another ending"});
  const std::string query = "http://host/a.jsonl?text=b.txt#c.txt", path = write("copy", " \n");
  EXPECT_EQ(corpus_of_file(query, "Text", path, path).kind, Corpus::Kind::examples);
}

TEST_F(CorpusTest, ATextMayBeginWithJsonAndIsThenNamed) {
  const auto warning_for = [&](const std::string& text) {
    testing::internal::CaptureStderr();
    const Corpus corpus = local_corpus(write("book.md", text));
    EXPECT_EQ(corpus.kind, Corpus::Kind::text) << text.substr(0, 80);
    measure(corpus);
    const std::string warnings = testing::internal::GetCapturedStderr();
    EXPECT_LE(std::ranges::count(warnings, '\n'), 1) << warnings;
    return warnings;
  };
  const std::string long_value(size_t{3} << 19, 'x');
  for (const std::string& text :
       {std::string("{\"prompt\": \"a\", \"answer\": 1} is how a line looks\n"),
        std::string("[{\"answer\": []}]: a list\n"), std::string("{\"source\": \"a\", \"target\": \"b\"}\n"),
        "{\"id\": \"" + long_value + "\", \"prompt\": \"a\"}\n"})
    expect_contains(warning_for(text), {"book.md begins with JSON", "read as a text"});
  for (const char* text : {"{\"a\" is a key\n", "{}\n", "{name}\n{\"text\": \"a\"}\n"})
    EXPECT_EQ(warning_for(text), "");
}

TEST_F(CorpusTest, ADamagedFirstLineIsNamed) {
  const std::string good = "{\"question\": \"a\", \"text\": \"b\"}\n";
  for (const char* line :
       {"{\"text\": \"b\"\n", "{\"text\": \"b\",\n", "{\"text\": \"b\"},\n", "{\"text\": \"b\"}}\n"})
    for (const char* name : {"a.txt", "a.jsonl"}) {
      const std::string path = write(name, line + good);
      expect_contains(user_error([&] { measure(local_corpus(path)); }), {path + ":1 is not valid JSON"});
    }
}

TEST_F(CorpusTest, JsonThatIsNotLinesOfExamplesIsRefused) {
  for (const char* name : {"a.json", "a.txt", "a.jsonl"}) {
    const std::string list = write(name, "[\n  {\"prompt\": \"a\", \"answer\": \"b\"}\n]\n");
    expect_contains(user_error([&] { local_corpus(list); }), {list, "a JSON list", "jq -c '.[]'"});
    const std::string spread = write(name, "{\n\"id\": 7,\n\"completion\": \"b\"\n}\n");
    expect_contains(user_error([&] { local_corpus(spread); }), {spread, "several lines", "jq -c '.'"});
  }
  const std::string lines = write("folder/b.TXT", "{\"text\": \"a\"}\n");
  write("folder/a.txt", "prose");
  expect_contains(user_error([&] { measure(local_corpus((folder_ / "folder").string())); }),
                  {lines, "no folder of texts can hold"});
}

TEST_F(CorpusTest, APipeIsReadOnce) {
  std::string lines;
  for (int i = 0; i < 9'000; ++i) lines += "{\"text\": \"more than one read returns\"}\n";
  const FullPipe pipe(lines);
  const Corpus examples = local_corpus(pipe.path());
  EXPECT_EQ(describe(examples, measure(examples)), "9000 examples from " + pipe.path());
  EXPECT_EQ(measure(examples).hash, hash_of(lines)) << "a second time";
  expect_contains(user_error([&] { local_corpus(pipe.path()); }),
                  {pipe.path() + " has no text", "only once", "lockrun"});
}

TEST_F(CorpusTest, APipeWaitsForItsWriter) {
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    std::ofstream file(pipe);
    file << "roses" << std::flush;
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    file << " and violets";
  });
  EXPECT_EQ(text_of(local_corpus(pipe)), "roses and violets");
  writer.join();
}

TEST_F(CorpusTest, ARequestToStopEndsTheWaitForAWriter) {
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto wait_and_stop = [&] {
    ::alarm(20);
    listen_for_stop_requests();
    std::thread([main = ::getpid()] {
      std::this_thread::sleep_for(std::chrono::milliseconds(120));
      ::kill(main, SIGUSR1);
    }).detach();
    try {
      local_corpus(pipe);
    } catch (const StoppedBeforeStart&) {
      std::_Exit(exit_stopped);
    }
  };
  EXPECT_EXIT(wait_and_stop(), testing::ExitedWithCode(exit_stopped), "");
}

TEST_F(CorpusTest, SaysThatTheFolderForTemporaryFilesIsMissing) {
  const FullPipe pipe("roses");
  const std::string file = write("file", "no folder");
  ::setenv("TMPDIR", file.c_str(), 1);
  expect_contains(user_error([&] { local_corpus(pipe.path()); }), {"TMPDIR = " + file});
  ::unsetenv("TMPDIR");
}

TEST_F(CorpusTest, SaysWhyAFileCannotBeFound) {
  expect_contains(user_error([] { local_corpus("/dev/fd/987"); }),
                  {"not open in this process", "/dev/stdin"});
  expect_contains(user_error([&] { local_corpus(write("a.txt", "x") + "/b"); }), {"Not a directory"});
  expect_contains(user_error([] { local_corpus("~/text.txt"); }), {"no such file"});
}

// Reading a file that was cut meanwhile must not end the process.
TEST_F(CorpusTest, AFileThatIsCutWhileItIsReadIsNamed) {
  const Corpus corpus = local_corpus(write("text.txt", std::string(300, 'a')));
  const auto use = [&](const TextWindow& window) {
    fs::resize_file(corpus.source, 150);
    return window.text.size();
  };
  expect_contains(error_of([&] { read_corpus(corpus, 100, use); }), {corpus.source, "ends at byte 150"});
}

}  // namespace
}  // namespace lockstep
