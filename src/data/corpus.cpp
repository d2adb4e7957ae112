// SPDX-License-Identifier: Apache-2.0
#include "data/corpus.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "data/sample_corpus.h"
#include "data/text.h"
#include "store/download.h"
#include "store/environment.h"
#include "store/sha256.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* shakespeare_file = "tinyshakespeare.txt";
constexpr const char* shakespeare_url =
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt";
constexpr const char* shakespeare_sha256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed";

bool is_file(const fs::path& path) {
  std::error_code unreadable;
  return fs::is_regular_file(path, unreadable);
}

/// `file` in $LOCKSTEP_DATA_DIR, if it is there.
std::optional<fs::path> find_in_data_folder(const fs::path& file) {
  const fs::path folder = environment("LOCKSTEP_DATA_DIR");
  if (folder.empty() || file.empty() || !is_file(folder / file)) return std::nullopt;
  return folder / file;
}

std::string read_file(const std::string& path) {
  std::error_code unreadable;
  const auto bytes = fs::file_size(path, unreadable);
  require(!unreadable, "cannot read ", path, ": ", unreadable.message());
  std::string contents(bytes, 0);
  std::ifstream file(path, std::ios::binary);
  file.read(contents.data(), static_cast<std::streamsize>(bytes));
  require(file.good(), "cannot read ", path);
  return contents;
}

/// Keeps a download for the next run. Whoever looks meanwhile sees the whole file or none; failing costs only
/// the next run's time.
void keep(const fs::path& path, const std::string& text) {
  try {
    fs::create_directories(path.parent_path());
    write_file(path.string(), text);
  } catch (const std::exception& failure) {
    log_warning(concat("cannot keep the download: ", failure.what()));
  }
}

/// 1115394 -> "1,115,394".
std::string with_thousands(size_t number) {
  std::string digits = std::to_string(number);
  for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(static_cast<size_t>(i), 1, ',');
  return digits;
}

Corpus make_corpus(const std::string& title, std::string text, const std::string& source) {
  const size_t characters = decode_utf8(text, concat("data.dataset: ", source)).size();
  require(characters > 0, "data.dataset: ", source, " is empty");
  std::string description = concat(title, ", ", with_thousands(characters), " characters from ", source);
  return {.text = std::move(text), .source = source, .description = std::move(description)};
}

/// A text that has an address, and what data.dataset calls it.
struct RemoteText {
  std::string name;
  std::string title;
  std::string url;
  std::string sha256;  ///< empty: any contents
  std::string advice;  ///< for a user who is offline
};

std::string fetch(const RemoteText& remote) {
  try {
    return download(remote.url, remote.sha256);
  } catch (const UserError& failure) {
    throw UserError(concat("data.dataset = ", remote.name, ": ", failure.what(), ". ", remote.advice,
                           ", or train on the built-in text with data.dataset=sample"));
  }
}

Corpus cached_or_fetched(const RemoteText& remote) {
  const fs::path folder = cache_folder();
  const fs::path cached = folder / ((remote.sha256.empty() ? sha256(remote.url) : remote.sha256) + ".txt");
  if (!folder.empty() && is_file(cached)) {
    std::string text = read_file(cached.string());
    if (remote.sha256.empty() || sha256(text) == remote.sha256)
      return make_corpus(remote.title, std::move(text), cached.string());
    log_warning(concat(cached.string(), " is damaged and is downloaded again"));
  }
  Corpus corpus = make_corpus(remote.title, fetch(remote), remote.url);
  if (!folder.empty()) keep(cached, corpus.text);
  return corpus;
}

Corpus shakespeare() {
  if (const auto path = find_in_data_folder(shakespeare_file))
    return make_corpus("Shakespeare", read_file(path->string()), path->string());
  return cached_or_fetched({.name = "shakespeare",
                            .title = "Shakespeare",
                            .url = shakespeare_url,
                            .sha256 = shakespeare_sha256,
                            .advice = concat("Set LOCKSTEP_DATA_DIR to a folder with ", shakespeare_file)});
}

Corpus from_address(const std::string& url) {
  const RemoteText remote{.name = url,
                          .title = "Text",
                          .url = url,
                          .sha256 = "",
                          .advice = "Download it elsewhere and give its path"};
  return url.starts_with("file://") ? make_corpus(remote.title, fetch(remote), url)
                                    : cached_or_fetched(remote);
}

Corpus from_file(const std::string& name) {
  std::error_code unreadable;
  require(!fs::is_directory(name, unreadable), "data.dataset = ", name,
          ": this is a folder; name the text file in it");
  const fs::path path = is_file(name) ? fs::path(name) : find_in_data_folder(name).value_or("");
  require(!path.empty(), "data.dataset = ", name,
          ": there is no such file, here or in LOCKSTEP_DATA_DIR; give a path, an address, shakespeare or "
          "sample");
  return make_corpus("Text", read_file(path.string()), path.string());
}

}  // namespace

Corpus resolve_corpus(const std::string& name) {
  if (name == "sample") return make_corpus("Generated lines", SampleCorpus::text(), "the built-in sample");
  if (name == "shakespeare") return shakespeare();
  return name.find("://") != std::string::npos ? from_address(name) : from_file(name);
}

}  // namespace lockstep
