// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/corpus.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <poll.h>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <tuple>
#include <unistd.h>

#include "lockstep/core/descriptor.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"
#include "lockstep/data/corpus_files.h"
#include "lockstep/kernels/random.h"
#include "lockstep/program/signals.h"
#include "lockstep/tokenizer/utf8.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// The keys of examples here and in the files of other programs, which the reader of examples refuses by
/// name.
constexpr std::array keys_of_examples = {"prompt",   "answer",        "text",        "completion", "response",
                                         "messages", "conversations", "instruction", "question"};

constexpr int64_t most_head_bytes = int64_t{1} << 20;

/// Returns whether a path or an address without query and fragment has an ending of JSON.
bool has_ending_of_json(std::string name) {
  if (name.find("://") != std::string::npos) name = name.substr(0, name.find_first_of("?#"));
  const std::string ending = lower_case(fs::path(name).extension().string());
  return ending == ".jsonl" || ending == ".ndjson" || ending == ".json";
}

/// Returns whether what follows a value in its line may be a mistake in JSON, and is not prose.
bool may_be_json(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  return first == std::string_view::npos ||
         std::string_view(",{[]}").find(text[first]) != std::string_view::npos;
}

/// Returns the first bytes of a file without a byte order mark and without blanks at the beginning.
std::string beginning_of(const Bytes& bytes, int64_t most) {
  std::string head(static_cast<size_t>(std::min(most, bytes.size())), '\0');
  bytes.read(0, std::as_writable_bytes(std::span(head)));
  head = without_byte_order_mark(head);
  return head.erase(0, std::min(head.find_first_not_of(" \t\r\n"), head.size()));
}

/// The JSON at the beginning of a text that may be cut or followed by other text.
struct FirstValue {
  bool is_list = false;
  bool has_object = false;  ///< it is an object with keys or a list of them
  bool has_known_key = false;
};

FirstValue first_value(std::string_view text) {
  FirstValue first;
  bool is_after_known_key = false;
  const auto watch = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    first.has_known_key |= is_after_known_key;  // what follows is its value
    is_after_known_key = false;
    if (depth == 0 && event == Json::parse_event_t::array_start) first.is_list = true;
    if (event == Json::parse_event_t::key && depth == (first.is_list ? 2 : 1)) {
      first.has_object = true;
      is_after_known_key = std::ranges::count(keys_of_examples, parsed.get<std::string>()) > 0;
    }
    return depth < 3;
  };
  std::ignore = Json::parse(text, watch, false);
  return first;
}

/// The end of the JSON value at the beginning of a text.
struct ValueEnd {
  std::optional<size_t> place;  ///< nothing if the value is damaged or cut
  bool is_cut = false;          ///< valid, but longer than the text
};

ValueEnd end_of_value(const std::string& text) {
  std::istringstream stream(text);
  Json value;
  try {
    stream >> value;
    return {.place = static_cast<size_t>(stream.tellg())};
  } catch (const Json::parse_error& problem) {
    return {.place = {}, .is_cut = problem.byte > text.size()};
  } catch (const Json::exception&) {
    return {};
  }
}

bool is_file(const fs::path& path) {
  std::error_code unreadable;
  return fs::is_regular_file(path, unreadable);
}

constexpr int most_wait_milliseconds = 50;
constexpr uint64_t sample_seed = 1564;

/// The words that are drawn for a line. Each list has 16 words, so four random bits choose one.
constexpr std::string_view subjects[] = {"Ann", "Bob", "Cal", "Dot", "Eve", "Gus", "Ida", "Jon",
                                         "Kay", "Leo", "Mia", "Ned", "Pam", "Roy", "Sue", "Tom"};
constexpr std::string_view verbs[] = {"bit", "cut", "fed", "fit", "got", "had", "hid", "hit",
                                      "led", "let", "met", "put", "ran", "saw", "set", "won"};
constexpr std::string_view adjectives[] = {"apt", "big", "coy", "dry", "fat", "hot", "icy", "lax",
                                           "mad", "new", "old", "pet", "raw", "sad", "tan", "wet"};
constexpr std::string_view nouns[] = {"ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen",
                                      "jay", "kid", "moa", "owl", "pig", "ram", "sow", "yak"};

/// Copies a pipe or a device, which can be read only once, to a file without a name. Each read waits with a
/// limit, so that a request to stop ends a wait for a writer.
std::shared_ptr<NewFile> copy_of_stream(const std::string& path) {
  const Descriptor stream(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  require(bool(stream), option_name("dataset"), ": cannot read ", path, ": ", std::strerror(errno));
  const std::shared_ptr<NewFile> copy = temporary_text();
  std::vector<std::byte> piece(size_t{1} << 16);
  int64_t size = 0;
  for (;;) {
    pollfd wanted{.fd = stream.get(), .events = POLLIN, .revents = 0};
    const bool is_ready = ::poll(&wanted, 1, most_wait_milliseconds) > 0;
    end_if_stop_was_requested();
    if (!is_ready && size == 0)
      continue;  // a read would take a pipe before its first writer for an empty one
    const ssize_t count = ::read(stream.get(), piece.data(), piece.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    require(count >= 0, option_name("dataset"), ": cannot read ", path, ": ", std::strerror(errno));
    if (count == 0) break;
    copy->write(size, std::span(piece).first(static_cast<size_t>(count)));
    size += count;
  }
  require(
      size > 0, option_name("dataset"), ": ", path,
      " has no text; a pipe can be read only once, and the ranks of lockrun have an empty standard input; "
      "give a file there");
  return copy;
}

/// Throws UserError that says why data.dataset cannot be found.
[[noreturn]] void refuse_missing(const std::string& name, const std::error_code& problem) {
  const bool is_descriptor = name.starts_with("/dev/fd/") || name.starts_with("/proc/self/fd/");
  const bool is_unknown = !problem || problem == std::errc::no_such_file_or_directory;
  const std::string reason =
      !is_unknown     ? problem.message()
      : is_descriptor ? "the descriptor is not open in this process, because launchers pass none but the "
                        "standard input on; use /dev/stdin, a named pipe or a file"
                      : "there is no such file, here or in LOCKSTEP_DATA_DIR; give a path, an address, "
                        "shakespeare or sample";
  throw UserError(concat(option_name("dataset"), " = ", name, ": ", reason));
}

Corpus folder_corpus(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code problem;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, problem))
    if (lower_case(entry.path().extension().string()) == ".txt" && is_file(entry.path()))
      paths.push_back(entry.path().string());
  require(!problem, option_name("dataset"), " = ", folder, ": ", problem.message());
  require(!paths.empty(), option_name("dataset"), " = ", folder,
          ": there is no *.txt in this folder; other files and subfolders are not read");
  std::ranges::sort(paths);
  Corpus corpus{.kind = Corpus::Kind::documents,
                .title = counted(std::ssize(paths), "text"),
                .source = folder,
                .documents = {}};
  for (const std::string& path : paths) corpus.documents.push_back({.name = path, .path = path});
  return corpus;
}

}  // namespace

bool has_examples(const std::string& name, const Bytes& bytes) {
  const bool is_named = has_ending_of_json(name);
  std::string head = beginning_of(bytes, int64_t{1} << 12);
  if (!head.starts_with('{') && !head.starts_with('[')) {
    require(!is_named || head.empty(), option_name("dataset"), ": ", name,
            " has the name of examples, but does not begin with a JSON object; a text needs another ending");
    return is_named;
  }
  head = beginning_of(bytes, most_head_bytes);
  const FirstValue first = first_value(head);
  const ValueEnd end = end_of_value(head);
  const bool goes_on = end.is_cut && bytes.size() > most_head_bytes;  // beyond the head
  const size_t line_end = std::min(head.find('\n'), head.size());
  const size_t value_end = std::min(end.place.value_or(line_end), line_end);
  const std::string_view after = std::string_view(head).substr(value_end, line_end - value_end);
  const bool is_text = !is_named && (!first.has_known_key || !may_be_json(after));
  if (is_text && first.has_object && (end.place || goes_on))
    log_warning(concat(option_name("dataset"), ": ", name,
                       " begins with JSON, and is read as a text; a line of examples ",
                       "is one object with \"prompt\" and \"answer\", \"text\" or \"messages\""));
  if (is_text || !(first.has_known_key || first.has_object)) return is_named;
  const bool is_spread = end.place.value_or(goes_on ? head.size() : 0) > line_end;
  require(!first.is_list && !is_spread, option_name("dataset"), ": ", name, " has ",
          first.is_list ? "a JSON list" : "a JSON object of several lines",
          "; each example must be one object on a line of its own, as jq -c '", first.is_list ? ".[]" : ".",
          "' writes it");
  return true;
}

std::shared_ptr<NewFile> temporary_text() {
  return std::make_shared<NewFile>(temporary_folder() + "/lockstep.txt");
}

std::string find_in_data_folder(const std::string& file) {
  const std::string folder = expanded_path(environment("LOCKSTEP_DATA_DIR"), "LOCKSTEP_DATA_DIR: ");
  if (folder.empty() || file.empty()) return "";
  const fs::path path = fs::path(folder) / file;
  return is_file(path) ? path.string() : "";
}

Corpus corpus_of_file(const std::string& name, const std::string& title, const std::string& path,
                      const std::string& source) {
  const std::shared_ptr<NewFile> copy = is_file(path) ? nullptr : copy_of_stream(path);
  const std::string place = copy ? copy->path_now() : path;
  return {.kind = has_examples(name, Bytes::of_file(place)) ? Corpus::Kind::examples : Corpus::Kind::text,
          .title = title,
          .source = source,
          .documents = {{.name = source, .path = place}},
          .keep = copy};
}

Corpus sample_corpus() {
  const std::string built_in = "the built-in sample";
  return {.title = "Generated lines",
          .source = built_in,
          .documents = {{.name = built_in, .path = "", .text = sample_text()}}};
}

Corpus local_corpus(const std::string& name) {
  std::error_code problem;
  const fs::file_status found = fs::status(name, problem);
  if (fs::is_directory(found)) return folder_corpus(name);
  const std::string path = fs::exists(found) ? name : find_in_data_folder(name);
  if (path.empty()) refuse_missing(name, problem);
  return corpus_of_file(name, "Text", path, path);
}

std::string sample_text(int64_t lines) {
  expect(lines >= 0, lines, " lines");
  std::ostringstream text;
  for (int64_t i = 0; i < lines; ++i) {
    const auto random = philox(sample_seed, {static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0});
    const auto name = subjects[random[0] >> 28], verb = verbs[random[1] >> 28],
               adjective = adjectives[random[2] >> 28], noun = nouns[random[3] >> 28];
    text << "- " << name << " " << verb << " " << adjective << " " << noun << "; " << adjective << " " << noun
         << ": " << name << "\n";
  }
  return text.str();
}

}  // namespace lockstep
