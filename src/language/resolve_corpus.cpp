// SPDX-License-Identifier: Apache-2.0
#include "lockstep/language/resolve_corpus.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"
#include "lockstep/data/bytes.h"
#include "lockstep/data/corpus_files.h"
#include "lockstep/language/download.h"
#include "lockstep/store/object_store.h"
#include "lockstep/store/sha256.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* shakespeare_file = "tinyshakespeare.txt";
constexpr const char* shakespeare_url =
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt";
constexpr const char* shakespeare_sha256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed";

/// A text with a URL, and its name in data.dataset.
struct RemoteText {
  std::string name;
  std::string title;
  std::string url;
  std::string sha256;  ///< empty: any contents
  std::string advice;  ///< for a user who is offline
};

/// Calls a function. Adds advice for a user without this text to its UserError.
template <class Call>
auto advise(const RemoteText& remote, Call call) {
  try {
    return call();
  } catch (const UserError& failure) {
    throw UserError(concat(option_name("dataset"), " = ", remote.name, ": ", failure.what(), ". ",
                           remote.advice, ", or use the built-in text, sample"));
  }
}

/// A file for a download: in the cache, or else in the folder for temporary files, and then why.
struct DownloadFile {
  explicit DownloadFile(const std::string& cached) {
    try {
      if (!cached.empty()) {
        fs::create_directories(fs::path(cached).parent_path());
        file = std::make_shared<NewFile>(cached);
      }
    } catch (const std::exception& failure) {
      problem = failure.what();
    }
    if (!file) file = temporary_text();
    is_in_cache = !cached.empty() && problem.empty();
  }

  std::shared_ptr<NewFile> file;
  bool is_in_cache = false;
  std::string problem;
};

/// Returns a download's corpus. It is kept at `cached`. If that fails, which is only logged, the text is in a
/// file that is deleted with its corpus.
Corpus corpus_of_download(const RemoteText& remote, const std::string& cached, DownloadFile& made,
                          const ObjectVersion& version) {
  try {
    if (made.is_in_cache) {
      keep_download(cached, *made.file, version);
      return corpus_of_file(remote.name, remote.title, cached, remote.url);
    }
  } catch (const Error& failure) {
    made.problem = failure.what();
  }
  if (!made.problem.empty()) log_warning(concat("cannot save the download: ", made.problem));
  Corpus corpus = corpus_of_file(remote.name, remote.title, made.file->path_now(), remote.url);
  corpus.keep = made.file;
  return corpus;
}

Corpus downloaded(const RemoteText& remote, const std::string& cached) {
  DownloadFile made(cached);
  const auto version = advise(remote, [&] { return download(remote.url, *made.file, remote.sha256); });
  return corpus_of_download(remote, cached, made, *version);
}

/// Returns the corpus of the download that an earlier run kept.
Corpus corpus_of_kept(const RemoteText& remote, const std::string& cached, const KeptDownload& kept) {
  Corpus corpus = corpus_of_file(remote.name, remote.title, cached, remote.url);
  corpus.source += concat(" (kept copy of ", kept.date, ", ", cached, ")");
  return corpus;
}

bool have_equal_bytes(const std::string& path, const std::string& other) {
  const Bytes one = Bytes::of_file(path), two = Bytes::of_file(other);
  if (one.size() != two.size()) return false;
  std::vector<std::byte> piece(size_t{1} << 20), of_other(piece.size());
  for (int64_t begin = 0; begin < one.size(); begin += std::ssize(piece)) {
    piece.resize(static_cast<size_t>(std::min(std::ssize(piece), one.size() - begin)));
    of_other.resize(piece.size());
    one.read(begin, piece);
    two.read(begin, of_other);
    if (piece != of_other) return false;
  }
  return true;
}

/// Downloads a text unless the server still has the version of the kept copy. Without an answer, which is
/// logged, the kept copy is used. A copy that another replaces stays under another name.
Corpus renewed(const RemoteText& remote, const std::string& cached, const KeptDownload& kept) {
  const ObjectVersion version = kept.version.value_or(ObjectVersion());
  const std::string copy =
      concat("the kept copy of ", kept.date, " is used; delete ", cached, " to renew it");
  if (kept.version && !version.is_known()) {
    log_warning(concat(remote.url, ": the server names no version by which a change could be seen; ", copy));
    return corpus_of_kept(remote, cached, kept);
  }
  try {
    DownloadFile made(cached);
    const std::optional<ObjectVersion> found = download(remote.url, *made.file, "", version);
    const bool is_same = !found || have_equal_bytes(cached, made.file->path_now());
    if (!found || (is_same && *found == version)) return corpus_of_kept(remote, cached, kept);
    if (!is_same && made.is_in_cache)
      log_info(concat(remote.url, ": a new copy replaces that of ", kept.date, ", which is now ",
                      keep_older(cached),
                      "; to resume a run on the older text, name that file instead of the ",
                      "address, and set log.dir to the folder of the run"));
    return corpus_of_download(remote, cached, made, *found);
  } catch (const UserError& failure) {
    log_warning(concat(failure.what(), "; ", copy));
    return corpus_of_kept(remote, cached, kept);
  }
}

/// Returns the path of a text in the cache; empty if there is no cache.
std::string cached_path(const RemoteText& remote) {
  const std::string folder = cache_folder();
  if (folder.empty()) return "";
  const std::string name =
      remote.sha256.empty() ? advise(remote, [&] { return sha256(remote.url); }) : remote.sha256;
  return concat(folder, "/", name, ".txt");
}

Corpus cached_or_downloaded(const RemoteText& remote) {
  const std::string cached = cached_path(remote);
  const std::optional<KeptDownload> kept = KeptDownload::find(cached);
  if (!kept) return downloaded(remote, cached);
  // A run that starts again needs the text that it began with.
  if (remote.sha256.empty() && restart_count() > 0) return corpus_of_kept(remote, cached, *kept);
  if (remote.sha256.empty()) return renewed(remote, cached, *kept);
  if (advise(remote, [&] { return sha256_of_file(cached); }) == remote.sha256)
    return corpus_of_kept(remote, cached, *kept);
  log_warning(concat(cached, " is damaged and is downloaded again"));
  return downloaded(remote, cached);
}

Corpus shakespeare() {
  const std::string path = find_in_data_folder(shakespeare_file);
  if (!path.empty()) return corpus_of_file(path, "Shakespeare", path, path);
  return cached_or_downloaded(
      {.name = "shakespeare",
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
  require(!url.starts_with("file://~"), option_name("dataset"), " = ", url,
          ": write the folder in full, or the path without file://");
  if (!url.starts_with("file://")) return cached_or_downloaded(remote);
  const std::optional<std::string> path = local_path(url);
  std::error_code unreadable;
  const bool is_here = path && fs::exists(*path, unreadable) && !fs::is_directory(*path, unreadable);
  return is_here ? corpus_of_file(url, remote.title, *path, url) : downloaded(remote, "");
}

/// Throws UserError if a run that starts again would read a pipe or a device, which has been read.
void require_text_of_restart(const std::string& name) {
  const std::optional<std::string> path = local_path(name);
  std::error_code unknown;
  const fs::file_status found = path && restart_count() > 0 ? fs::status(*path, unknown) : fs::file_status();
  require(!fs::is_other(found), option_name("dataset"), " = ", name,
          " is a pipe or a device, which can be read only once; a run that starts again needs a file");
}

}  // namespace

Corpus resolve_corpus(const std::variant<NamedText, std::string>& dataset) {
  if (const auto* named = std::get_if<NamedText>(&dataset)) {
    expect(*named != NamedText::random_tokens, "random tokens have no text");
    return *named == NamedText::sample ? sample_corpus() : shakespeare();
  }
  const std::string& name = std::get<std::string>(dataset);
  require_text_of_restart(name);
  return name.find("://") != std::string::npos ? from_address(name) : local_corpus(name);
}

}  // namespace lockstep
