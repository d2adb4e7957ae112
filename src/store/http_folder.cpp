// SPDX-License-Identifier: Apache-2.0
#include "store/http_folder.h"

#include <utility>

#include "core/error.h"
#include "store/retry.h"

namespace lockstep {
namespace {

constexpr RetryPolicy folder_retries{.attempts = 3};

[[noreturn]] void refuse_to_write(const std::string& name) {
  throw Error(concat(name, ": objects at a web address are read-only"));
}

}  // namespace

HttpFolder::HttpFolder(std::string address) : address_(std::move(address)) {
  while (address_.ends_with('/')) address_.pop_back();
}

/// Requests an object. Throws UserError if the server refuses, and Error if it does not answer.
HttpReply HttpFolder::ask(const std::string& key, const std::vector<std::string>& headers) {
  try {
    return with_retries(folder_retries, [&] {
      HttpReply reply = client_.perform({.url = name_of(key), .headers = headers, .may_redirect = true});
      if (reply.status == 429 || reply.status >= 500)
        throw TransientError(concat("the server answered ", reply.status));
      require(reply.status < 400 || reply.status == 404 || reply.status == 416, "the server answered ",
              reply.status);
      return reply;
    });
  } catch (const UserError& problem) {
    throw UserError(concat("cannot read ", name_of(key), ": ", problem.what()));
  } catch (const Error& problem) {
    throw Error(concat("cannot read ", name_of(key), ": ", problem.what()));
  }
}

std::optional<std::string> HttpFolder::get(const std::string& key) {
  HttpReply reply = ask(key, {});
  if (reply.status == 404) return std::nullopt;
  return std::move(reply.body);
}

std::optional<std::string> HttpFolder::get(const std::string& key, int64_t begin, int64_t bytes) {
  if (!whole_.contains(key)) {
    if (bytes <= 0) return exists(key) ? std::optional<std::string>("") : std::nullopt;
    HttpReply reply = ask(key, {concat("Range: bytes=", begin, "-", begin + bytes - 1)});
    if (reply.status == 404) return std::nullopt;
    if (reply.status == 416) return "";
    if (reply.status == 206) return reply.body.substr(0, static_cast<size_t>(bytes));
    whole_[key] = std::move(reply.body);
  }
  const std::string& all = whole_[key];
  return begin >= std::ssize(all) ? "" : all.substr(static_cast<size_t>(begin), static_cast<size_t>(bytes));
}

bool HttpFolder::exists(const std::string& key) { return get(key, 0, 1).has_value(); }

std::string HttpFolder::name_of(const std::string& key) const {
  return key.empty() ? address_ : concat(address_, "/", key);
}

std::vector<std::string> HttpFolder::list(const std::string& /*prefix*/) {
  throw Error(concat(address_, ": objects below a web address cannot be listed"));
}

void HttpFolder::put(const std::string& key, Pieces /*contents*/) { refuse_to_write(name_of(key)); }
void HttpFolder::remove(const std::string& key) { refuse_to_write(name_of(key)); }
void HttpFolder::remove_group(const std::string& group, const std::string& /*last*/) {
  refuse_to_write(name_of(group));
}
std::string HttpFolder::begin_group(const std::string& group, std::span<const PlannedObject> /*objects*/,
                                    const std::string& /*last*/) {
  refuse_to_write(name_of(group));
}
std::string HttpFolder::write_parts(const std::string& group, const std::string& /*begun*/,
                                    const std::string& /*key*/, std::span<const ObjectPart> /*parts*/) {
  refuse_to_write(name_of(group));
}
void HttpFolder::end_group(const std::string& group, const std::string& /*begun*/,
                           std::span<const std::string> /*written*/, const Object& /*last*/) {
  refuse_to_write(name_of(group));
}
void HttpFolder::drop_group(const std::string& /*group*/, const std::string& /*begun*/) noexcept {}

}  // namespace lockstep
