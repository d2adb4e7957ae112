// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <iostream>
#include <span>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/text.h"
#include "lockstep/core/thread_pool.h"
#include "lockstep/data/read_corpus.h"
#include "lockstep/program/command_line.h"
#include "lockstep/tokenizer/load_tokenizer.h"
#include "lockstep/unicode/normalization.h"
#include "measure.h"
#include "report.h"

using namespace lockstep;

namespace {

std::string name_of(const std::string& path) { return std::filesystem::path(path).filename().string(); }

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Measures the megabytes per second that a tokenizer encodes and decodes");
  std::string path, text_path;
  int threads = 1;
  double seconds = 3;
  bool append = false;
  line.add("--tokenizer", path, "tokenizer.json, vocab.json, a tiktoken file, or a folder",
           {.is_required = true, .is_path = true});
  line.add("--text", text_path, "a text file", {.is_required = true, .is_path = true});
  line.add("--threads", threads, "threads that encode", {.least = 1});
  line.add("--seconds", seconds, "length of each measurement", {.is_positive = true});
  line.add_flag("--append", append, "add the row to bench/results/bench_tokenizer.csv");
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  return run_alone([&] {
    const auto tokenizer = load_tokenizer(path);
    const std::string text = read_named_file(text_path, "--text");
    detail::ThreadPool pool(threads);
    const Corpus corpus = corpus_of_file(text_path, "Text", text_path, text_path);
    std::vector<int32_t> ids = tokenizer->encode(text, text_path);
    const auto encode_by_threads = [&] {
      ids.clear();
      encode_corpus(*tokenizer, corpus, pool, [&](std::span<const int32_t> part, std::span<const int64_t>) {
        ids.insert(ids.end(), part.begin(), part.end());
      });
    };
    std::string decoded;
    const std::vector<Timing> timings = measure({[&] {
                                                   if (threads == 1)
                                                     ids = tokenizer->encode(text, text_path);
                                                   else
                                                     encode_by_threads();
                                                 },
                                                 [&] { decoded = tokenizer->decode(ids); }},
                                                seconds);
    // A tokenizer may normalize a text.
    expect(normalized(decoded) == normalized(text), "the decoded text differs from the encoded one");
    const auto rate = [&](const Timing& timing) {
      return fixed_text(static_cast<double>(text.size()) / timing.seconds / 1e6, 1);
    };
    Report report("bench_tokenizer",
                  {{"tokenizer", 24},
                   {"text", 16},
                   {"bytes", 10},
                   {"ids", 10},
                   {"encode_mb_s", 12},
                   {"spread", 7},
                   {"decode_mb_s", 12}},
                  {.ranks = 1, .threads = threads});
    report.add({name_of(path), name_of(text_path), std::to_string(text.size()), std::to_string(ids.size()),
                rate(timings[0]), fixed_text(timings[0].spread_percent, 1), rate(timings[1])});
    if (append) report.append();
    return 0;
  });
}
