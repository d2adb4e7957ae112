// SPDX-License-Identifier: Apache-2.0
#include "train/resolve_corpus.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "store/download.h"
#include "store/sha256.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* shakespeare_file = "tinyshakespeare.txt";
constexpr const char* shakespeare_url =
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt";
constexpr const char* shakespeare_sha256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed";

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
  std::error_code unreadable;
  if (!folder.empty() && fs::is_regular_file(cached, unreadable)) {
    std::string text = read_corpus_file(cached.string());
    if (remote.sha256.empty() || sha256(text) == remote.sha256)
      return make_corpus(remote.title, std::move(text), cached.string());
    log_warning(concat(cached.string(), " is damaged and is downloaded again"));
  }
  Corpus corpus = make_corpus(remote.title, fetch(remote), remote.url);
  if (!folder.empty()) keep(cached, corpus.text);
  return corpus;
}

Corpus shakespeare() {
  const std::string path = find_in_data_folder(shakespeare_file);
  if (!path.empty()) return make_corpus("Shakespeare", read_corpus_file(path), path);
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

}  // namespace

Corpus resolve_corpus(const std::string& name) {
  if (name == "shakespeare") return shakespeare();
  return name.find("://") != std::string::npos ? from_address(name) : local_corpus(name);
}

}  // namespace lockstep
