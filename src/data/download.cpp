// SPDX-License-Identifier: Apache-2.0
#include "data/download.h"

#include <array>
#include <curl/curl.h>
#include <memory>
#include <openssl/evp.h>

#include "core/error.h"

namespace lockstep {
namespace {

constexpr long connect_timeout_seconds = 5;
constexpr long stall_timeout_seconds = 10;

size_t append(const char* data, size_t item_bytes, size_t items, void* text) {
  static_cast<std::string*>(text)->append(data, item_bytes * items);
  return item_bytes * items;
}

std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> open_handle() {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  expect(initialised == CURLE_OK, "libcurl does not start: ", curl_easy_strerror(initialised));
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle(curl_easy_init(), curl_easy_cleanup);
  expect(handle != nullptr, "libcurl opens no handle");
  return handle;
}

}  // namespace

std::string sha256(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int digest_bytes = 0;
  const int done =
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), &digest_bytes, EVP_sha256(), nullptr);
  expect(done == 1, "OpenSSL computes no SHA-256");
  std::string text;
  for (unsigned int i = 0; i < digest_bytes; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

std::string download(const std::string& url, const std::string& expected_sha256) {
  const auto handle = open_handle();
  std::string contents;
  std::array<char, CURL_ERROR_SIZE> reason{};
  curl_easy_setopt(handle.get(), CURLOPT_URL, url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(handle.get(), CURLOPT_PROTOCOLS_STR, "http,https,file");
  curl_easy_setopt(handle.get(), CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(handle.get(), CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS | CURLPROTO_FILE);
  curl_easy_setopt(handle.get(), CURLOPT_REDIR_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
  curl_easy_setopt(handle.get(), CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(handle.get(), CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(handle.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle.get(), CURLOPT_CONNECTTIMEOUT, connect_timeout_seconds);
  curl_easy_setopt(handle.get(), CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle.get(), CURLOPT_LOW_SPEED_TIME, stall_timeout_seconds);
  curl_easy_setopt(handle.get(), CURLOPT_ERRORBUFFER, reason.data());
  curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, append);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &contents);
  const CURLcode result = curl_easy_perform(handle.get());
  require(result == CURLE_OK, "cannot download ", url, ": ",
          reason[0] != 0 ? reason.data() : curl_easy_strerror(result));
  if (expected_sha256.empty()) return contents;
  const std::string actual = sha256(contents);
  require(actual == expected_sha256, "what ", url, " sent is refused: its sha256 is ", actual, ", not ",
          expected_sha256);
  return contents;
}

}  // namespace lockstep
