// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <curl/curl.h>
#include <exception>
#include <iterator>
#include <new>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/store/http.h"

namespace lockstep {
namespace {

constexpr int64_t largest_reservation = int64_t{64} << 20;
/// Later bytes of an error page are dropped.
constexpr size_t most_bytes_of_error = size_t{64} << 10;
/// A request of N bytes may take `least_seconds` + N / `average_rate`.
constexpr double least_seconds = 120.0;
constexpr double average_rate = 16.0 * 1024.0;
constexpr long upload_buffer_bytes = 512L << 10;
constexpr long expect_milliseconds = 100;  // delay of each body if a server ignores "Expect:"

/// The position of the next byte of a request body.
struct BodyReader {
  Pieces pieces;
  size_t piece = 0;
  size_t offset = 0;
};

size_t read_body(char* target, size_t item_bytes, size_t items, void* state) {
  auto& reader = *static_cast<BodyReader*>(state);
  size_t done = 0;
  while (done < item_bytes * items && reader.piece < reader.pieces.size()) {
    const auto rest = reader.pieces[reader.piece].subspan(reader.offset);
    const size_t count = std::min(rest.size(), item_bytes * items - done);
    if (count > 0) std::memcpy(target + done, rest.data(), count);
    done += count;
    reader.offset += count;
    if (count == rest.size()) {
      ++reader.piece;
      reader.offset = 0;
    }
  }
  return done;
}

/// Returns to the start of the body. libcurl asks for this when a kept connection turns out to be dead.
int seek_body(void* state, curl_off_t offset, int origin) {
  auto& reader = *static_cast<BodyReader*>(state);
  if (origin != SEEK_SET || offset != 0) return CURL_SEEKFUNC_CANTSEEK;
  reader.piece = reader.offset = 0;
  return CURL_SEEKFUNC_OK;
}

/// Makes room for what the headers announce, so that a large body is not moved while it grows.
void reserve_body(HttpReply& reply) {
  const auto announced = reply.headers.find("content-length");
  if (announced == reply.headers.end()) return;
  const int64_t bytes = number_in<int64_t>(announced->second).value_or(0);
  reply.body.reserve(static_cast<size_t>(std::clamp<int64_t>(bytes, 0, largest_reservation)));
}

/// The place for the body of a reply: a file, if it is given and the reply is a success, or else memory.
struct BodyWriter {
  CURL* curl = nullptr;
  const HttpRequest* request = nullptr;
  HttpReply* reply = nullptr;
  int64_t written = 0;
  std::exception_ptr problem = {};  ///< thrown once libcurl, which is written in C, has returned

  void write(std::string_view piece) {
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    std::string& body = reply->body;
    if (status >= 300) {
      body += piece.substr(0, most_bytes_of_error - std::min(body.size(), most_bytes_of_error));
      return;
    }
    if (request->file != nullptr) {
      request->file->write(written, std::as_bytes(std::span(piece)));
      written += std::ssize(piece);
      return;
    }
    expect(std::ssize(body) + std::ssize(piece) <= request->most_bytes, "the reply has more than ",
           request->most_bytes, " bytes");
    if (body.empty()) reserve_body(*reply);
    body += piece;
  }
};

size_t write_body(const char* data, size_t item_bytes, size_t items, void* state) {
  auto& writer = *static_cast<BodyWriter*>(state);
  try {
    writer.write({data, item_bytes * items});
  } catch (...) {
    writer.problem = std::current_exception();
    return 0;
  }
  return item_bytes * items;
}

/// Ends a request that takes too long for its bytes. A reply of unknown size counts the bytes so far.
int check_pace(void* state, curl_off_t down_total, curl_off_t down_now, curl_off_t up_total,
               curl_off_t /*up_now*/) {
  const auto begin = *static_cast<const Clock::time_point*>(state);
  const auto bytes = static_cast<double>(std::max(down_total, down_now) + up_total);
  return seconds_since(begin) > least_seconds + bytes / average_rate ? 1 : 0;
}

size_t read_header(const char* data, size_t item_bytes, size_t items, void* state) {
  auto& reply = *static_cast<HttpReply*>(state);
  const std::string_view line(data, item_bytes * items);
  // Discards a redirect or an interim reply.
  if (line.starts_with("HTTP/")) reply = {};
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return line.size();
  try {
    reply.headers[lower_case(std::string(line.substr(0, colon)))] = trimmed(line.substr(colon + 1));
  } catch (const std::bad_alloc&) {
    return 0;  // libcurl reports a failed write
  }
  return line.size();
}

bool is_users_fault(CURLcode result) {
  constexpr std::array faults = {CURLE_UNSUPPORTED_PROTOCOL,   CURLE_URL_MALFORMAT,
                                 CURLE_FILE_COULDNT_READ_FILE, CURLE_PEER_FAILED_VERIFICATION,
                                 CURLE_SSL_CACERT_BADFILE,     CURLE_TOO_MANY_REDIRECTS};
  return std::find(faults.begin(), faults.end(), result) != faults.end();
}

using HeaderList = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

HeaderList make_headers(const HttpRequest& request) {
  HeaderList list(nullptr, curl_slist_free_all);
  for (const std::string& header : request.headers) {
    curl_slist* first = curl_slist_append(list.get(), header.c_str());
    expect(first != nullptr, "libcurl cannot add a header");
    if (!list) list.reset(first);
  }
  return list;
}

long milliseconds(double seconds) { return static_cast<long>(seconds * 1000.0); }

void set_address(CURL* curl, const HttpRequest& request) {
  // A redirect must not lead to a connection that others can read or change.
  const bool is_encrypted = lower_case(request.url.substr(0, 6)) == "https:";
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https,file");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, is_encrypted ? "https" : "http,https");
#else
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS | CURLPROTO_FILE);
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, CURLPROTO_HTTPS | (is_encrypted ? 0L : CURLPROTO_HTTP));
#endif
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, request.may_redirect ? 1L : 0L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
  if (!request.may_use_proxy) curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  if (!request.ca_bundle.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, request.ca_bundle.c_str());
}

void set_limits(CURL* curl, const HttpRequest& request, Clock::time_point& begin) {
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(request.connect_seconds));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(request.least_rate));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(request.stall_seconds)));
  if (request.total_seconds > 0.0) {
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, milliseconds(request.total_seconds));
    return;
  }
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, check_pace);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &begin);
}

void set_method(CURL* curl, const HttpRequest& request, BodyReader& reader) {
  if (request.method == "HEAD") {
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    return;
  }
  if (request.method == "PUT" || request.method == "POST") {
    curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(total_bytes(request.body)));
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, read_body);
    curl_easy_setopt(curl, CURLOPT_READDATA, &reader);
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, seek_body);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, &reader);
    curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, upload_buffer_bytes);
    curl_easy_setopt(curl, CURLOPT_EXPECT_100_TIMEOUT_MS, expect_milliseconds);
  }
  if (request.method != "GET") curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

}  // namespace

std::string host_of_url(const std::string& url) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(curl_url(), curl_url_cleanup);
  char* host = nullptr;
  if (curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      curl_url_get(parsed.get(), CURLUPART_HOST, &host, 0) != CURLUE_OK)
    return "";
  const std::unique_ptr<char, decltype(&curl_free)> owned(host, curl_free);
  return lower_case(host);
}

HttpClient::HttpClient() : curl_(nullptr, curl_easy_cleanup) {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  expect(initialised == CURLE_OK, "libcurl cannot start: ", curl_easy_strerror(initialised));
  curl_.reset(curl_easy_init());
  expect(curl_ != nullptr, "libcurl cannot open a handle");
}

HttpReply HttpClient::perform(const HttpRequest& request) {
  CURL* curl = curl_.get();
  HttpReply reply;
  BodyReader reader{.pieces = request.body};
  BodyWriter writer{.curl = curl, .request = &request, .reply = &reply};
  Clock::time_point begin = Clock::now();
  // An attempt before this one may have written a part.
  if (request.file != nullptr) request.file->clear();
  std::array<char, CURL_ERROR_SIZE> reason{};
  const HeaderList headers = make_headers(request);
  curl_easy_reset(curl);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason.data());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, read_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &reply);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, write_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &writer);
  set_address(curl, request);
  set_limits(curl, request, begin);
  set_method(curl, request, reader);
  const CURLcode result = curl_easy_perform(curl);
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply.status);
  // The handle must not keep pointers to variables of this call.
  curl_easy_reset(curl);
  if (writer.problem) std::rethrow_exception(writer.problem);
  if (result == CURLE_OK) return reply;
  const std::string problem = result == CURLE_ABORTED_BY_CALLBACK ? "slower than 16 KiB/s on average"
                              : reason[0] != 0                    ? reason.data()
                                                                  : curl_easy_strerror(result);
  require(!is_users_fault(result), problem);
  throw TransientError(problem);
}

}  // namespace lockstep
