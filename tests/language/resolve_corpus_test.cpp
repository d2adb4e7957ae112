// SPDX-License-Identifier: Apache-2.0
#include "lockstep/language/resolve_corpus.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/read_corpus.h"
#include "support/http_server.h"
#include "support/temporary_directory.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// An address that refuses connections: no process listens on the port of an obsolete service.
const std::string refusing = "http://127.0.0.1:1";

/// Tests in a new folder with a cache of its own, no data folder, and a proxy that refuses every connection.
class ResolveCorpus : public testing::Test {
 protected:
  void SetUp() override {
    set("XDG_CACHE_HOME", folder_ / "cache");
    set("LOCKSTEP_DATA_DIR", "");
    set("https_proxy", refusing);
    set("no_proxy", "127.0.0.1");
    set_wording({{"dataset", "data.dataset"}});
  }
  static void set(const char* variable, const std::string& value) { ::setenv(variable, value.c_str(), 1); }

  std::string write(const fs::path& name, const std::string& contents) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << contents;
    return (folder_ / name).string();
  }

  std::vector<std::string> cached_files() const {
    std::vector<std::string> names;
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache/lockstep", missing))
      names.push_back(entry.path().filename().string());
    return names;
  }

  static std::string text_of(const Corpus& corpus) {
    std::string text;
    read_corpus(corpus, 1000, [&](const TextWindow& window) {
      text += window.text;
      return window.text.size();
    });
    return text;
  }

  TemporaryDirectory temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(ResolveCorpus, LooksIntoTheDataFolder) {
  write("data/tinyshakespeare.txt", std::string(1234567, 'x'));
  set("LOCKSTEP_DATA_DIR", folder_ / "data");
  const Corpus corpus = resolve_corpus(NamedText::shakespeare);
  EXPECT_EQ(describe(corpus, measure(corpus)),
            "Shakespeare, 1,234,567 characters from " + (folder_ / "data/tinyshakespeare.txt").string());
}

TEST_F(ResolveCorpus, OfflineShakespeareSaysWhatToDo) {
  expect_contains(user_error([] { resolve_corpus(NamedText::shakespeare); }),
                  {"cannot download https://", "LOCKSTEP_DATA_DIR", "tinyshakespeare.txt",
                   "or use the built-in text, sample"});
  EXPECT_TRUE(cached_files().empty());
}

TEST_F(ResolveCorpus, DoesNotTrustADamagedCache) {
  write("cache/lockstep/86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed.txt", "cut short");
  expect_contains(user_error([] { resolve_corpus(NamedText::shakespeare); }), {"cannot download https://"});
}

TEST_F(ResolveCorpus, ReadsAFileUrlAnewEveryTime) {
  const std::string url = "file://" + write("poem.txt", "roses");
  EXPECT_EQ(text_of(resolve_corpus(url)), "roses");
  write("poem.txt", "violets");
  EXPECT_EQ(text_of(resolve_corpus(url)), "violets");
  write("a poem.txt", "asters");
  EXPECT_EQ(text_of(resolve_corpus("file://" + (folder_ / "a%20poem.txt").string())), "asters");
  try {
    resolve_corpus("file://~/poems/a.txt");
    ADD_FAILURE() << "only a shell replaces ~";
  } catch (const UserError& refused) {
    EXPECT_NE(std::string(refused.what()).find("without file://"), std::string::npos) << refused.what();
  }
  EXPECT_TRUE(cached_files().empty());
  expect_contains(user_error([&] { resolve_corpus(url + ".missing"); }),
                  {"data.dataset = " + url + ".missing"});
}

/// A server of one text that sends it only if a request does not name its version.
struct VersionedText {
  std::string text, version;   ///< "ETag: ..." or "Last-Modified: ..."
  std::string condition = {};  ///< "If-None-Match: ..." or "If-Modified-Since: ..."
  std::string status = "200 OK";

  std::string answer(const std::string& request) const {
    const bool is_known = !condition.empty() && request.find(condition + "\r\n") != std::string::npos;
    return is_known ? http_reply("304 Not Modified") : http_reply(status, text, version);
  }
};

TEST_F(ResolveCorpus, AKeptDownloadIsRenewedWhenItsVersionChanges) {
  const std::string date = "Wed, 25 Nov 2026 10:11:12 GMT";
  const std::vector<std::pair<VersionedText, VersionedText>> changes = {
      {{"to be", "ETag: \"a 1\"\r\n", "If-None-Match: \"a 1\""},
       {"not to be", "ETag: W/\"b\"\r\n", "If-None-Match: W/\"b\""}},
      {{"to be", "Last-Modified: " + date + "\r\n", "If-Modified-Since: " + date}, {"be", ""}}};
  for (const auto& [before, after] : changes) {
    VersionedText now = before;
    const HttpServer server([&](const std::string& request) { return now.answer(request); });
    const std::string url = server.url() + "/hamlet";
    for (int start = 0; start < 3; ++start) EXPECT_EQ(text_of(resolve_corpus(url)), before.text);
    EXPECT_EQ(server.requests().size(), 3U) << "each start asks";
    expect_contains(resolve_corpus(url).source, {url + " (kept copy of 20", " UTC, "});
    now = after;
    set("LOCKSTEP_RESTART_COUNT", "1");
    EXPECT_EQ(text_of(resolve_corpus(url)), before.text) << "a run that starts again keeps its text";
    ::unsetenv("LOCKSTEP_RESTART_COUNT");
    testing::internal::CaptureStderr();
    resolve_corpus(url);
    const std::string log = testing::internal::GetCapturedStderr();
    expect_contains(log, {url + ": a new copy replaces that of 20", "name that file instead of the address"});
    EXPECT_EQ(text_of(resolve_corpus(url)), after.text);
    const size_t name = log.find("is now ") + 7;
    EXPECT_EQ(text_of(resolve_corpus(log.substr(name, log.find(';', name) - name))), before.text);
  }
}

TEST_F(ResolveCorpus, AnEqualTextIsNoNewCopy) {
  const std::string date = "Wed, 25 Nov 2026 10:11:12 GMT";
  const std::vector<std::string> versions = {"ETag: x\r\n", "ETag: x\r\n", "ETag: y\r\n",
                                             "Last-Modified: " + date + "\r\n"};
  VersionedText now{std::string(3 << 20, 'b'), ""};
  const HttpServer server([&](const std::string& request) { return now.answer(request); });
  testing::internal::CaptureStderr();
  for (const std::string& version : versions) {
    now.version = version;
    EXPECT_EQ(resolve_corpus(server.url() + "/b").documents.size(), 1U);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(cached_files().size(), 2U) << "the text and its version";
  expect_contains(server.requests().back(), {"If-None-Match: y"});
  testing::internal::CaptureStderr();
  now.text.back() = 'c';
  resolve_corpus(server.url() + "/b");
  expect_contains(testing::internal::GetCapturedStderr(), {"a new copy replaces"});
}

TEST_F(ResolveCorpus, ARunThatStartsAgainReadsNoPipe) {
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  set("LOCKSTEP_RESTART_COUNT", "2");
  for (const std::string& name : {pipe, "file://" + pipe, std::string("/dev/null")})
    expect_contains(user_error([&] { resolve_corpus(name); }), {"data.dataset = " + name, "needs a file"});
  EXPECT_EQ(text_of(resolve_corpus(write("file", "roses"))), "roses");
  ::unsetenv("LOCKSTEP_RESTART_COUNT");
}

TEST_F(ResolveCorpus, ATextThatChangesAgainInTheSecondOfItsDownloadIsRenewed) {
  const std::string date = "Wed, 25 Nov 2026 10:11:12 GMT",
                    headers = "Last-Modified: " + date + "\r\nDate: " + date + "\r\n";
  VersionedText now{"to be", headers, "If-Modified-Since: " + date};
  const HttpServer server([&](const std::string& request) { return now.answer(request); });
  EXPECT_EQ(text_of(resolve_corpus(server.url() + "/hamlet")), "to be");
  now.text = "BE TO";
  EXPECT_EQ(text_of(resolve_corpus(server.url() + "/hamlet")), "BE TO");
}

TEST_F(ResolveCorpus, ADateIsNotSentWithAnETag) {
  const std::string date = "Wed, 25 Nov 2026 10:11:12 GMT";
  VersionedText now{"to be", "ETag: x\r\nLast-Modified: " + date + "\r\n", "If-Modified-Since: " + date};
  const HttpServer server([&](const std::string& request) { return now.answer(request); });
  EXPECT_EQ(text_of(resolve_corpus(server.url() + "/hamlet")), "to be");
  now.text = "BE TO";
  EXPECT_EQ(text_of(resolve_corpus(server.url() + "/hamlet")), "BE TO");
}

TEST_F(ResolveCorpus, AServerThatDoesNotAnswerLeavesTheKeptCopy) {
  std::string url, warning;
  const auto resolved = [&] {
    testing::internal::CaptureStderr();
    const std::string text = text_of(resolve_corpus(url));
    warning = testing::internal::GetCapturedStderr();
    return text;
  };
  {
    VersionedText now{"to be", "ETag: x\r\n", "If-None-Match: x"};
    const HttpServer server([&](const std::string& request) { return now.answer(request); });
    url = server.url() + "/hamlet";
    EXPECT_EQ(resolved(), "to be");
    EXPECT_EQ(warning, "");
    now = {.text = "expired", .version = "", .status = "403 Forbidden"};
    EXPECT_EQ(resolved(), "to be");
    expect_contains(warning, {url, "answered 403", "kept copy of 20", "delete "});
  }
  EXPECT_EQ(resolved(), "to be");
  expect_contains(warning, {"cannot download " + url, "the kept copy of 20", "is used", "to renew"});
}

TEST_F(ResolveCorpus, AVersionThatNobodyNamesIsSaid) {
  VersionedText now{"to be", ""};
  const HttpServer server([&](const std::string& request) { return now.answer(request); });
  resolve_corpus(server.url() + "/hamlet");
  now.text = "not to be";
  testing::internal::CaptureStderr();
  EXPECT_EQ(text_of(resolve_corpus(server.url() + "/hamlet")), "to be");
  expect_contains(testing::internal::GetCapturedStderr(),
                  {server.url() + "/hamlet", "names no version", "kept copy of 20", "delete "});
  EXPECT_EQ(server.requests().size(), 1U);
}

// An earlier version of this program recorded none, and two processes may put their files in any order.
TEST_F(ResolveCorpus, ACopyWithoutItsOwnVersionIsDownloadedAgain) {
  const VersionedText now{"to be", "ETag: x\r\n", "If-None-Match: x"};
  const HttpServer server([&](const std::string& request) { return now.answer(request); });
  resolve_corpus(server.url() + "/hamlet");
  for (const std::string& file : cached_files())
    if (file.ends_with(".txt")) write("cache/lockstep/" + file, "BE TO");
  EXPECT_EQ(text_of(resolve_corpus(server.url() + "/hamlet")), "to be");
  for (const std::string& file : cached_files())
    if (!file.ends_with(".txt")) fs::remove(folder_ / "cache/lockstep" / file);
  EXPECT_EQ(text_of(resolve_corpus(server.url() + "/hamlet")), "to be");
  EXPECT_EQ(server.requests().back().find("If-None-Match"), std::string::npos);
}

TEST_F(ResolveCorpus, ARefusedConnectionSaysWhatToDo) {
  const std::string url = refusing + "/a.txt";
  expect_contains(user_error([&] { resolve_corpus(url); }),
                  {"data.dataset = " + url, "or use the built-in text, sample"});
}

TEST_F(ResolveCorpus, AnErrorPageIsNoCorpus) {
  const HttpServer server(
      [](const std::string&) { return http_reply("404 Not Found", "<html>nothing here</html>"); });
  expect_contains(user_error([&] { resolve_corpus(server.url() + "/a.txt"); }), {"cannot download", "404"});
}

TEST_F(ResolveCorpus, GoesOnWithoutACache) {
  write("cache", "a file where the folder should be");
  fs::create_directories(folder_ / "temporary");
  set("TMPDIR", folder_ / "temporary");
  const HttpServer server([](const std::string&) { return http_reply("200 OK", "text"); });
  {
    const Corpus corpus = resolve_corpus(server.url() + "/a.txt");
    EXPECT_EQ(text_of(corpus), "text");
    EXPECT_EQ(corpus.source, server.url() + "/a.txt");
  }
  EXPECT_TRUE(fs::is_empty(folder_ / "temporary")) << "the text must not stay";
  set("TMPDIR", folder_ / "missing");
  expect_contains(user_error([&] { resolve_corpus(server.url() + "/a.txt"); }),
                  {"TMPDIR = ", (folder_ / "missing").string()});
  ::unsetenv("TMPDIR");
}

// The second attempt must not leave a part of the first in the file.
TEST_F(ResolveCorpus, ADownloadThatBreaksOffBeginsAgain) {
  int attempts = 0;
  const HttpServer server([&](const std::string&) {
    const std::string whole = http_reply("200 OK", ++attempts == 1 ? std::string(100'000, 'x') : "to be");
    return attempts == 1 ? whole.substr(0, 50'000) : whole;
  });
  EXPECT_EQ(text_of(resolve_corpus(server.url() + "/a.txt")), "to be");
  EXPECT_EQ(attempts, 2);
}

TEST_F(ResolveCorpus, RefusesOtherProtocols) {
  expect_contains(user_error([] { resolve_corpus("ftp://127.0.0.1/a"); }), {"data.dataset = ftp://"});
}

}  // namespace
}  // namespace lockstep
