// SPDX-License-Identifier: Apache-2.0
#include "store/s3_store.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "store/xml.h"

namespace lockstep {
namespace {

constexpr size_t most_parts = 10'000;
constexpr int uploads_to_try = 3;

/// Bytes [begin, begin + count) of the pieces.
std::vector<std::span<const std::byte>> slice(Pieces pieces, size_t begin, size_t count) {
  std::vector<std::span<const std::byte>> part;
  for (auto piece : pieces) {
    if (begin >= piece.size()) {
      begin -= piece.size();
      continue;
    }
    piece = piece.subspan(begin, std::min(count, piece.size() - begin));
    begin = 0;
    count -= piece.size();
    if (!piece.empty()) part.push_back(piece);
    if (count == 0) break;
  }
  return part;
}

XmlElement parse_reply(const HttpReply& reply, const std::string& root, const std::string& name) {
  XmlElement parsed = parse_xml(reply.body);
  expect(parsed.name == root, name, ": the server answered with ", parsed.name, " in place of ", root);
  return parsed;
}

}  // namespace

S3Store::S3Store(const S3Address& address, const S3Options& options)
    : client_(address.bucket, options), prefix_(address.key.empty() ? "" : address.key + "/") {}

std::string S3Store::full_key(const std::string& key) const { return prefix_ + key; }

std::string S3Store::without_prefix(const std::string& key) const {
  expect(key.starts_with(prefix_), "the server lists ", client_.name_of(key), ", which it was not asked for");
  return key.substr(prefix_.size());
}

std::string S3Store::name_of(const std::string& key) const {
  std::string name = client_.name_of(full_key(key));
  if (key.empty() && name.ends_with('/')) name.pop_back();
  return name;
}

void S3Store::put(const std::string& key, Pieces contents) {
  if (total_bytes(contents) <= client_.options().part_bytes) {
    const HttpReply reply = client_.send({.method = "PUT", .key = full_key(key), .body = contents});
    expect(reply.status != 404, name_of(key), ": PUT was answered with 404");
    return;
  }
  for (int tried = 0; tried < uploads_to_try; ++tried)
    if (put_in_parts(key, contents)) return;
  throw Error(concat(name_of(key), ": the server lost the upload of its parts ", uploads_to_try, " times"));
}

/// False if the server does not know the upload (any more): it was ended by a request whose answer was lost.
bool S3Store::put_in_parts(const std::string& key, Pieces contents) {
  const std::string target = full_key(key);
  const HttpReply started = client_.send({.method = "POST", .key = target, .query = {{"uploads", ""}}});
  const std::string upload =
      parse_reply(started, "InitiateMultipartUploadResult", name_of(key)).text_of("UploadId");
  try {
    const std::string parts = send_parts(key, upload, contents);
    if (parts.empty()) return false;
    const std::array body = {std::as_bytes(std::span(parts))};
    const HttpReply completed =
        client_.send({.method = "POST", .key = target, .query = {{"uploadId", upload}}, .body = body});
    return completed.status != 404;
  } catch (const Error&) {
    // Parts that nobody completes cost money for ever.
    try {
      client_.send({.method = "DELETE", .key = target, .query = {{"uploadId", upload}}});
    } catch (const Error&) {
      // The first failure is the one to tell.
    }
    throw;
  }
}

/// The request body that completes the upload; empty if the server does not know the upload.
std::string S3Store::send_parts(const std::string& key, const std::string& upload, Pieces contents) {
  const size_t bytes = total_bytes(contents);
  const size_t part_bytes = std::max(client_.options().part_bytes, bytes / most_parts + 1);
  std::string parts = "<CompleteMultipartUpload>";
  for (size_t begin = 0, number = 1; begin < bytes; begin += part_bytes, ++number) {
    const auto part = slice(contents, begin, part_bytes);
    const HttpReply reply =
        client_.send({.method = "PUT",
                      .key = full_key(key),
                      .query = {{"partNumber", std::to_string(number)}, {"uploadId", upload}},
                      .body = part});
    if (reply.status == 404) return "";
    const auto tag = reply.headers.find("etag");
    expect(tag != reply.headers.end(), name_of(key), ": the server gave part ", number, " no ETag");
    parts += concat("<Part><PartNumber>", number, "</PartNumber><ETag>", escape_xml(tag->second),
                    "</ETag></Part>");
  }
  return parts + "</CompleteMultipartUpload>";
}

std::optional<std::string> S3Store::get(const std::string& key) {
  HttpReply reply = client_.send({.method = "GET", .key = full_key(key)});
  if (reply.status == 404) return std::nullopt;
  return std::move(reply.body);
}

bool S3Store::exists(const std::string& key) {
  return client_.send({.method = "HEAD", .key = full_key(key)}).status != 404;
}

void S3Store::remove(const std::string& key) { client_.send({.method = "DELETE", .key = full_key(key)}); }

std::vector<std::string> S3Store::list(const std::string& prefix) {
  std::vector<std::string> keys;
  std::map<std::string, std::string> query = {{"list-type", "2"}, {"prefix", full_key(prefix)}};
  while (true) {
    const HttpReply reply = client_.send({.method = "GET", .key = "", .query = query});
    const XmlElement page = parse_reply(reply, "ListBucketResult", name_of(prefix));
    for (const XmlElement& element : page.children)
      if (element.name == "Contents") keys.push_back(without_prefix(element.text_of("Key")));
    if (page.text_of("IsTruncated") != "true") break;
    const std::string next = page.text_of("NextContinuationToken");
    expect(!next.empty(), name_of(prefix), ": the server's list goes on nowhere");
    query["continuation-token"] = next;
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

void S3Store::put_group(const std::string& group, std::span<const Object> objects) {
  if (objects.empty()) return;
  ask_guard();
  // An old last object would vouch for a mixture of old and new.
  remove(group + "/" + objects.back().key);
  for (const Object& object : objects) put(group + "/" + object.key, object.pieces);
}

void S3Store::remove_group(const std::string& group, const std::string& last) {
  ask_guard();
  remove(group + "/" + last);
  for (const std::string& key : list(group + "/")) remove(key);
}

}  // namespace lockstep
