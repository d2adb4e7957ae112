// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/store/http.h"
#include "lockstep/store/s3_client.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr int64_t most_parts = 10'000;
constexpr int uploads_to_try = 3;
constexpr const char* list_root = "ListBucketResult";
/// A page of a list has a thousand keys of at most 1024 bytes, and any byte may be escaped.
constexpr size_t most_page_bytes = size_t{16} << 20;

/// An uploaded part: its number, from 1, and the server's tag of its contents.
using SentPart = std::pair<int64_t, std::string>;

/// Returns bytes [begin, begin + count) of the pieces.
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

/// Returns the element `root` of an answer, valid as long as `document`. Throws Error for another root.
pugi::xml_node parse_reply(pugi::xml_document& document, const HttpReply& reply, const char* root,
                           const std::string& name) {
  expect(reply.body.size() <= most_page_bytes, name, ": the server's answer of ", reply.body.size(),
         " bytes is too long");
  const pugi::xml_parse_result parsed = document.load_string(reply.body.c_str());
  expect(static_cast<bool>(parsed), name, ": the server's answer is not XML: ", parsed.description());
  const pugi::xml_node element = document.document_element();
  expect(std::string_view(element.name()) == root, name, ": the server answered with ", element.name(),
         " instead of ", root);
  return element;
}

/// A store under a prefix in a bucket. Objects larger than S3Options::part_bytes are uploaded in parts.
class S3Store : public ObjectStore {
 public:
  S3Store(const S3Address& address, const S3Options& options)
      : client_(address.bucket, options), prefix_(address.key.empty() ? "" : address.key + "/") {}

  std::string name_of(const std::string& key) const override {
    std::string name = client_.name_of(prefix_ + key);
    if (key.empty() && name.ends_with('/')) name.pop_back();
    return name;
  }

  void put(const std::string& key, Pieces contents) override {
    ask_guard();
    if (total_bytes(contents) <= client_.options().part_bytes) {
      const HttpReply reply = client_.send({.method = "PUT", .key = prefix_ + key, .body = contents});
      expect(reply.status != 404, name_of(key), ": PUT was answered with 404");
      return;
    }
    for (int tried = 0; tried < uploads_to_try; ++tried)
      if (put_in_parts(key, contents)) return;
    throw Error(concat(name_of(key), ": the server lost the multipart upload ", uploads_to_try, " times"));
  }

  int64_t part_bytes(int64_t object_bytes) const override {
    const auto bytes = static_cast<int64_t>(client_.options().part_bytes);
    // No part ends within an element of a tensor.
    constexpr int64_t largest_element = 8;
    return object_bytes / bytes < most_parts
               ? bytes
               : (object_bytes / (most_parts * largest_element) + 1) * largest_element;
  }

  std::optional<std::string> get(const std::string& key, int64_t begin, int64_t bytes) override {
    HttpReply reply = client_.send({.method = "GET", .key = prefix_ + key, .begin = begin, .bytes = bytes});
    if (reply.status == 404) return std::nullopt;
    return reply.status == 416 ? "" : std::move(reply.body);
  }

  bool exists(const std::string& key) override {
    return client_.send({.method = "HEAD", .key = prefix_ + key}).status != 404;
  }

  void remove(const std::string& key) override { client_.send({.method = "DELETE", .key = prefix_ + key}); }

  std::vector<std::string> list(const std::string& prefix) override {
    std::vector<std::string> keys;
    std::map<std::string, std::string> query = {{"list-type", "2"}, {"prefix", prefix_ + prefix}};
    while (true) {
      const HttpReply reply = client_.send({.method = "GET", .key = "", .query = query, .root = list_root});
      pugi::xml_document answer;
      const pugi::xml_node page = parse_reply(answer, reply, list_root, name_of(prefix));
      for (const pugi::xml_node& element : page.children("Contents")) {
        const std::string key = element.child_value("Key");
        expect(key.starts_with(prefix_), "the server lists ", client_.name_of(key),
               ", which was not requested");
        keys.push_back(key.substr(prefix_.size()));
      }
      if (std::string_view(page.child_value("IsTruncated")) != "true") break;
      const std::string next = page.child_value("NextContinuationToken");
      expect(!next.empty() && next != query["continuation-token"], name_of(prefix),
             ": the server's list is cut off without a new continuation token");
      query["continuation-token"] = next;
    }
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  /// Starts an upload for every object of more than a part and returns the names of the uploads. A process
  /// that writes parts needs permissions of its own.
  std::string begin_group(const std::string& group, std::span<const PlannedObject> objects,
                          const std::string& last) override {
    ask_guard();
    // With an old last object, a mixture of old and new objects would look whole.
    remove(group + "/" + last);
    Json uploads = Json::object();
    try {
      for (const auto& [key, bytes] : objects) {
        if (bytes <= part_bytes(bytes)) continue;
        // Removes the old object. If one exists later, it was completed by a request whose answer was lost.
        remove(group + "/" + key);
        uploads[key] = {{"upload", begin_upload(group + "/" + key)}, {"part_bytes", part_bytes(bytes)}};
      }
    } catch (const Error&) {
      drop_group(group, uploads.dump());
      throw;
    }
    return uploads.dump();
  }

  std::string write_parts(const std::string& group, const std::string& begun, const std::string& key,
                          std::span<const ObjectPart> parts) override {
    const std::string object = group + "/" + key;
    const Json uploads = Json::parse(begun);
    std::vector<std::span<const std::byte>> contents;
    for (const ObjectPart& part : parts) contents.push_back(part.bytes);
    Json sent = Json::array();
    if (!uploads.contains(key)) {
      put(object, contents);
      return sent.dump();
    }
    const auto whole_part = uploads.at(key).at("part_bytes").get<size_t>();
    const size_t bytes = total_bytes(contents);
    auto number = parts.empty() ? 0 : parts.front().begin / static_cast<int64_t>(whole_part);
    for (size_t begin = 0; begin < bytes; begin += whole_part) {
      const auto tag =
          send_part(object, uploads.at(key).at("upload"), ++number, slice(contents, begin, whole_part));
      expect(tag.has_value(), name_of(object), ": the server lost the multipart upload");
      sent.push_back({key, number, *tag});
    }
    return sent.dump();
  }

  void end_group(const std::string& group, const std::string& begun, std::span<const std::string> written,
                 const Object& last) override {
    std::map<std::string, std::map<int64_t, std::string>> tags;
    for (const std::string& text : written) {
      const Json parts = Json::parse(text);
      for (const Json& sent : parts) tags[sent.at(0)][sent.at(1)] = sent.at(2);
    }
    ask_guard();
    const Json uploads = Json::parse(begun);
    for (const auto& [key, upload] : uploads.items()) {
      const std::string object = group + "/" + key;
      const bool is_complete = complete(object, upload.at("upload"), {tags[key].begin(), tags[key].end()});
      expect(is_complete || exists(object), name_of(object), ": the server lost the multipart upload");
    }
    put(group + "/" + last.key, last.pieces);
  }

  void drop_group(const std::string& group, const std::string& begun) noexcept override {
    const Json uploads = Json::parse(begun);
    for (const auto& [key, upload] : uploads.items()) drop_upload(group + "/" + key, upload.at("upload"));
  }

  void remove_group(const std::string& group, const std::string& last) override {
    ask_guard();
    remove(group + "/" + last);
    for (const std::string& key : list(group + "/"))
      if (is_own(key.substr(group.size() + 1))) remove(key);
  }

  bool has_atomic_groups() const override { return false; }

 private:
  bool put_in_parts(const std::string& key, Pieces contents) {
    const size_t bytes = total_bytes(contents);
    const auto whole_part = static_cast<size_t>(part_bytes(static_cast<int64_t>(bytes)));
    const std::string upload = begin_upload(key);
    try {
      std::vector<SentPart> parts;
      for (size_t begin = 0; begin < bytes; begin += whole_part) {
        const auto tag = send_part(key, upload, std::ssize(parts) + 1, slice(contents, begin, whole_part));
        if (!tag) return false;
        parts.emplace_back(std::ssize(parts) + 1, *tag);
      }
      return complete(key, upload, parts);
    } catch (const Error&) {
      drop_upload(key, upload);
      throw;
    }
  }

  std::string begin_upload(const std::string& key) {
    constexpr const char* root = "InitiateMultipartUploadResult";
    const HttpReply started =
        client_.send({.method = "POST", .key = prefix_ + key, .query = {{"uploads", ""}}, .root = root});
    pugi::xml_document answer;
    return parse_reply(answer, started, root, name_of(key)).child_value("UploadId");
  }

  /// Uploads a part and returns the server's tag; nothing if the server does not know the upload (any more).
  std::optional<std::string> send_part(const std::string& key, const std::string& upload, int64_t number,
                                       Pieces contents) {
    const HttpReply reply =
        client_.send({.method = "PUT",
                      .key = prefix_ + key,
                      .query = {{"partNumber", std::to_string(number)}, {"uploadId", upload}},
                      .body = contents});
    if (reply.status == 404) return std::nullopt;
    const auto tag = reply.headers.find("etag");
    expect(tag != reply.headers.end(), name_of(key), ": the server's answer to part ", number,
           " has no ETag");
    return tag->second;
  }

  /// Completes an upload. Returns false if the server does not know it (any more): it was completed by a
  /// request whose answer was lost.
  bool complete(const std::string& key, const std::string& upload, const std::vector<SentPart>& parts) {
    pugi::xml_document document;
    pugi::xml_node root = document.append_child("CompleteMultipartUpload");
    for (const auto& [number, tag] : parts) {
      pugi::xml_node sent = root.append_child("Part");
      sent.append_child("PartNumber").text() = number;
      sent.append_child("ETag").text() = tag.c_str();
    }
    std::ostringstream saved;
    document.save(saved, "", pugi::format_raw | pugi::format_no_declaration);
    const std::string text = saved.str();
    const std::array body = {std::as_bytes(std::span(text))};
    const HttpReply completed = client_.send({.method = "POST",
                                              .key = prefix_ + key,
                                              .query = {{"uploadId", upload}},
                                              .body = body,
                                              .root = "CompleteMultipartUploadResult"});
    return completed.status != 404;
  }

  /// Aborts an upload. Parts of an upload that is never completed cost money for ever.
  void drop_upload(const std::string& key, const std::string& upload) noexcept {
    try {
      client_.send({.method = "DELETE",
                    .key = prefix_ + key,
                    .query = {{"uploadId", upload}},
                    .attempts = client_.options().retries.attempts});
    } catch (const std::exception&) {
      // Only the first failure is reported.
    }
  }

  S3Client client_;
  std::string prefix_;  ///< empty, or with a slash at its end
};

}  // namespace

std::unique_ptr<ObjectStore> open_s3(const S3Address& address, const std::optional<S3Options>& options,
                                     bool may_wait) {
  S3Options chosen = options ? *options : S3Options::from_environment();
  if (!may_wait) chosen.retries.outage_seconds = 0.0;
  return std::make_unique<S3Store>(address, chosen);
}

HttpReply download_from_s3(const S3Address& address, NewFile& file, const RetryPolicy& retries,
                           const std::vector<std::string>& headers) {
  S3Options options = S3Options::from_environment();
  options.retries = retries;
  return S3Client(address.bucket, options).send({.key = address.key, .headers = headers, .file = &file});
}

}  // namespace lockstep
