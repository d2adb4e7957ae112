// SPDX-License-Identifier: Apache-2.0
#include "huggingface/http_folder.h"

#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "store/http.h"
#include "store/retry.h"

namespace lockstep {
namespace {

constexpr RetryPolicy folder_retries{.attempts = 3};

class HttpFolder : public ObjectReader {
 public:
  explicit HttpFolder(std::string address) : address_(std::move(address)) {
    while (address_.ends_with('/')) address_.pop_back();
  }

  std::optional<std::string> get(const std::string& key, int64_t begin, int64_t bytes) override {
    if (!whole_.contains(key)) {
      if (bytes <= 0) return exists(key) ? std::optional<std::string>("") : std::nullopt;
      HttpReply reply = ask(key, begin, bytes);
      if (reply.status == 404) return std::nullopt;
      if (reply.status == 416) return "";
      const bool is_whole = begin == 0 && bytes == all_bytes;
      if (is_whole || reply.status == 206) return std::move(reply.body);
      whole_[key] = std::move(reply.body);
    }
    const std::string& all = whole_[key];
    return begin >= std::ssize(all) ? "" : all.substr(static_cast<size_t>(begin), static_cast<size_t>(bytes));
  }

  bool exists(const std::string& key) override { return get(key, 0, 1).has_value(); }

  std::string name_of(const std::string& key) const override {
    return key.empty() ? address_ : concat(address_, "/", key);
  }

 private:
  /// Requests a part of an object, which may come whole. Throws UserError if the server refuses, and Error if
  /// it does not answer.
  HttpReply ask(const std::string& key, int64_t begin, int64_t bytes) {
    const HttpRequest request = {.url = name_of(key),
                                 .headers = range_header(begin, bytes),
                                 .may_redirect = true,
                                 .most_bytes = most_bytes_in_memory};
    try {
      return with_retries(folder_retries, [&] {
        HttpReply reply = client_.perform(request);
        if (reply.is_busy()) throw TransientError(concat("the server answered ", reply.status));
        require(reply.status < 400 || reply.status == 404 || reply.status == 416, "the server answered ",
                reply.status);
        if (reply.status == 206) cut_to_range(reply, begin, bytes);
        return reply;
      });
    } catch (const UserError& problem) {
      throw UserError(concat("cannot read ", name_of(key), ": ", problem.what()));
    } catch (const Error& problem) {
      throw Error(concat("cannot read ", name_of(key), ": ", problem.what()));
    }
  }

  std::string address_;
  HttpClient client_;
  std::map<std::string, std::string> whole_;  ///< objects that came whole instead of a range
};

}  // namespace

std::unique_ptr<ObjectReader> open_http_folder(const std::string& address) {
  return std::make_unique<HttpFolder>(address);
}

}  // namespace lockstep
