// SPDX-License-Identifier: Apache-2.0
#include "lockstep/language/known_facts.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/hash.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* heading = "lockstep corpus 3";
constexpr int64_t nanoseconds_of_second = 1'000'000'000;

/// The files of a corpus as the file system describes them.
struct Stamp {
  uint64_t hash = 0;   ///< changes with every file
  int64_t newest = 0;  ///< time of the last change, in nanoseconds since 1970

  bool operator==(const Stamp&) const = default;
};

/// Returns nothing if a document is not in a file with a name.
std::optional<Stamp> stamp_of(const Corpus& corpus) {
  std::string text;
  Stamp stamp;
  for (const Document& document : corpus.documents) {
    struct stat file {};
    if (corpus.keep || document.path.empty() || ::stat(document.path.c_str(), &file) != 0) return {};
    const auto time = [](const timespec& at) { return at.tv_sec * nanoseconds_of_second + at.tv_nsec; };
    const int64_t written = time(file.st_mtim), changed = time(file.st_ctim);
    text += concat(fs::path(document.path).filename().string(), " ", file.st_size, " ", file.st_ino, " ",
                   written, " ", changed, "\n");
    stamp.newest = std::max({stamp.newest, written, changed});
  }
  stamp.hash = hash_of(text);
  return stamp;
}

/// Returns the path of a corpus's record; empty if there is no cache folder.
std::string path_of(const Corpus& corpus) {
  const std::string folder = cache_folder();
  std::error_code unknown;
  const fs::path place = fs::canonical(
      corpus.kind == Corpus::Kind::documents ? corpus.source : corpus.documents.at(0).path, unknown);
  const uint64_t key = hash_of(concat("corpus ", place.string(), "\n", corpus.columns.text()));
  return folder.empty() || unknown ? "" : concat(folder, "/", hash_text(key), ".corpus");
}

/// Returns a record: a heading, numbers, the alphabet, and a checksum of all these.
std::string record_of(const Stamp& stamp, const CorpusFacts& facts) {
  const std::string text =
      concat(heading, "\n", stamp.hash, " ", facts.hash, " ", facts.bytes, " ", facts.count, " ",
             facts.answers, " ", static_cast<int>(facts.kind), "\n", facts.alphabet);
  return text + hash_text(hash_of(text));
}

/// Returns the facts of a record. Returns nothing if it is missing, damaged or of other files.
std::optional<CorpusFacts> recorded_facts(const std::string& path, const Stamp& stamp) {
  const std::string record = read_file(path).value_or("");
  const size_t end = record.size() - std::min<size_t>(record.size(), 16);
  if (hash_text(hash_of(std::string_view(record).substr(0, end))) != record.substr(end)) return {};
  std::istringstream text(record.substr(0, end));
  CorpusFacts facts;
  uint64_t hash = 0;
  int kind = 0;
  std::string first;
  std::getline(text, first);
  text >> hash >> facts.hash >> facts.bytes >> facts.count >> facts.answers >> kind;
  if (first != heading || hash != stamp.hash || text.get() != '\n') return {};
  facts.kind = static_cast<Example::Kind>(kind);
  facts.alphabet.assign(std::istreambuf_iterator(text), {});
  return facts;
}

}  // namespace

CorpusFacts facts_of(const Corpus& corpus, std::chrono::system_clock::time_point now) {
  const std::optional<Stamp> stamp = stamp_of(corpus);
  const std::string path = stamp ? path_of(corpus) : "";
  if (path.empty()) return measure(corpus);
  if (std::optional<CorpusFacts> facts = recorded_facts(path, *stamp)) return std::move(*facts);
  CorpusFacts facts = measure(corpus);
  const int64_t age = std::chrono::nanoseconds(now.time_since_epoch()).count() - stamp->newest;
  if (facts.bytes < least_cached_bytes || age < 2 * nanoseconds_of_second || stamp_of(corpus) != stamp)
    return facts;
  try {
    fs::create_directories(fs::path(path).parent_path());
    write_file(path, record_of(*stamp, facts));
  } catch (const std::exception&) {
    // The ids cannot be kept either, which is logged. The next start reads all of the text again.
  }
  return facts;
}

void forget_facts(const Corpus& corpus) {
  std::error_code missing;
  if (stamp_of(corpus)) fs::remove(path_of(corpus), missing);
}

}  // namespace lockstep
