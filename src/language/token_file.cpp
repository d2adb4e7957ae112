// SPDX-License-Identifier: Apache-2.0
#include "lockstep/language/token_file.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <regex>
#include <span>
#include <system_error>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/log.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Header {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t bytes_each;
  uint64_t key;
  uint64_t checksum;  ///< hash of the bytes after the header
  int64_t tokens;
  int64_t marks;
};
static_assert(sizeof(Header) == 48);

constexpr std::array magic = {'L', 'S', 'T', 'O', 'K', 'E', 'N', 'S'};
constexpr uint32_t version = 1;
constexpr int64_t piece_bytes = int64_t{4} << 20;

/// Calls use(begin, piece) with all bytes from `begin` on, in pieces.
template <class Use>
void in_pieces(const Bytes& bytes, int64_t begin, Use use) {
  std::vector<std::byte> memory(static_cast<size_t>(std::min(piece_bytes, bytes.size())));
  for (; begin < bytes.size(); begin += std::ssize(memory)) {
    const auto piece =
        std::span(memory).first(std::min(memory.size(), static_cast<size_t>(bytes.size() - begin)));
    bytes.read(begin, piece);
    use(begin, piece);
  }
}

uint64_t checksum_of(const Bytes& bytes) {
  Hasher hasher;
  in_pieces(bytes, sizeof(Header), [&](int64_t, std::span<const std::byte> piece) { hasher.add(piece); });
  return hasher.value();
}

Header header_of(const Bytes& bytes) {
  Header header{};
  bytes.read(0, std::as_writable_bytes(std::span(&header, 1)));
  return header;
}

/// Returns the path of the file for a key; empty if there is no cache folder.
std::string path_of(uint64_t key) {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : (fs::path(folder) / (hash_text(key) + ".tokens")).string();
}

/// Returns the image in a file, which is verified; empty if there is none or it is damaged.
TokenImage found_at(const std::string& path, uint64_t key) {
  std::error_code unreadable;
  if (path.empty() || !fs::is_regular_file(path, unreadable)) return {};
  TokenImage image = TokenImage::of_file(path, key, true);
  if (!image) log_warning(concat(path, " is damaged and is made again"));
  return image;
}

/// Removes files that killed processes have left unfinished. They have a name that NewFile makes, and have
/// not been written to for a day.
void remove_leftovers(const fs::path& folder) {
  static const std::regex unfinished(R"(.*\.\d+-\d+-\d+\.tmp)");
  const auto yesterday = fs::file_time_type::clock::now() - std::chrono::hours(24);
  std::error_code gone;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, gone))
    if (std::regex_match(entry.path().filename().string(), unfinished) && entry.is_regular_file(gone) &&
        entry.last_write_time(gone) < yesterday && !gone)
      fs::remove(entry.path(), gone);
}

/// An image that is being written: to a new file in the cache folder or, if that fails, to memory.
class NewImage {
 public:
  /// Begins a file at `path`, or memory if there is no path.
  explicit NewImage(std::optional<std::string> path) : path_(std::move(path)) {
    try_file([&] {
      if (!path_) return;
      expect(!path_->empty(), "neither XDG_CACHE_HOME nor HOME is set");
      fs::create_directories(fs::path(*path_).parent_path());
      remove_leftovers(fs::path(*path_).parent_path());
      file_ = std::make_unique<NewFile>(*path_);
    });
  }

  void write(int64_t begin, std::span<const std::byte> bytes) {
    try_file([&] {
      if (file_) file_->write(begin, bytes);
    });
    if (!file_) write_to_memory(begin, bytes);
    size_ = std::max(size_, begin + std::ssize(bytes));
  }

  /// Returns all that was written.
  Bytes bytes() const {
    return file_ ? Bytes::of_file(file_->path_now()) : Bytes({memory_, memory_->data}, size_);
  }
  /// Puts the file at its path, unless a valid image of another run is there by now. Returns whether one is.
  bool publish(uint64_t key) {
    try {
      if (file_ && !file_->publish_if_absent() && !TokenImage::of_file(*path_, key, true)) file_->publish();
      return file_ != nullptr;
    } catch (const std::exception& failure) {
      warn(failure);
      return false;
    }
  }

 private:
  struct Memory {
    ~Memory() { std::free(data); }
    std::byte* data = nullptr;
    int64_t capacity = 0;
  };

  static void warn(const std::exception& failure) {
    log_warning(concat("the encoded text cannot be kept in a file, so each rank keeps it in memory: ",
                       failure.what()));
  }
  /// Calls a function that writes to the file. If it fails, the contents of the file move to memory.
  template <class Call>
  void try_file(Call call) {
    try {
      call();
    } catch (const std::exception& failure) {
      warn(failure);
      const std::unique_ptr<NewFile> file = std::move(file_);
      const auto move = [this](int64_t begin, auto piece) { write_to_memory(begin, piece); };
      if (file) in_pieces(Bytes::of_file(file->path_now()), 0, move);
    }
  }

  /// Memory grows by realloc(), which moves the pages of a large block and copies nothing.
  void write_to_memory(int64_t begin, std::span<const std::byte> bytes) {
    const int64_t end = begin + std::ssize(bytes);
    if (end > memory_->capacity) {
      memory_->capacity = end + end / 2;
      void* const larger = std::realloc(memory_->data, static_cast<size_t>(memory_->capacity));
      if (larger == nullptr) throw std::bad_alloc();
      memory_->data = static_cast<std::byte*>(larger);
    }
    if (!bytes.empty()) std::memcpy(memory_->data + begin, bytes.data(), bytes.size());
  }

  std::optional<std::string> path_;
  std::unique_ptr<NewFile> file_;
  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  int64_t size_ = 0;
};

/// Writes the image of a text while it is encoded.
void encode_to(NewImage& image, const TokenLayout& layout, const Encode& encode) {
  Header header{.magic = magic,
                .version = version,
                .bytes_each = layout.vocabulary_size <= 65536 ? 2U : 4U,
                .key = layout.key,
                .checksum = 0,
                .tokens = 0,
                .marks = 0};
  const int64_t first_mark = sizeof(Header), first_id = first_mark + 16 * layout.answers;
  std::vector<uint16_t> narrow;
  encode([&](std::span<const int32_t> ids, std::span<const int64_t> marks) {
    std::span<const std::byte> bytes = std::as_bytes(ids);
    if (header.bytes_each == 2) {
      narrow.assign(ids.begin(), ids.end());
      bytes = std::as_bytes(std::span(narrow));
    }
    image.write(first_id + header.tokens * header.bytes_each, bytes);
    image.write(first_mark + 8 * header.marks, std::as_bytes(marks));
    header.tokens += std::ssize(ids);
    header.marks += std::ssize(marks);
  });
  expect(header.marks == 2 * layout.answers, header.marks, " marks of ", layout.answers, " answers");
  header.checksum = checksum_of(image.bytes());
  image.write(0, std::as_bytes(std::span(&header, 1)));
}

/// An image, and whether it is in the file at its path.
struct Kept {
  TokenImage image;
  bool is_in_file = false;
};

/// Makes an image with fill(new_image). Keeps it at `path`, or in memory if there is no path.
template <class Fill>
Kept keep(const std::optional<std::string>& path, uint64_t key, Fill fill) {
  NewImage image(path);
  fill(image);
  TokenImage made(image.bytes(), key, false);
  return {std::move(made), image.publish(key)};
}

/// Broadcasts rank 0's image to the ranks that need it. They keep it at `path`, or in memory if there is no
/// path. The others return `mine`. All ranks call it.
Kept hand_out(const World& world, uint64_t key, const Kept& mine, bool needs,
              const std::optional<std::string>& path) {
  Communicator& communicator = world.communicator();
  if (communicator.on_every_rank(!needs)) return mine;
  const int64_t size = communicator.broadcast_value(mine.image.bytes().size(), 0);
  const auto receive = [&](NewImage* image) {
    std::vector<std::byte> memory(static_cast<size_t>(std::min(piece_bytes, size)));
    for (int64_t begin = 0; begin < size; begin += piece_bytes) {
      const auto piece = std::span(memory).first(static_cast<size_t>(std::min(piece_bytes, size - begin)));
      if (world.is_first()) mine.image.bytes().read(begin, piece);
      communicator.broadcast(piece.data(), std::ssize(piece), 0);
      if (image) image->write(begin, piece);
    }
    expect(!image || TokenImage(image->bytes(), key, true), "rank 0's encoded text was damaged on its way");
  };
  if (needs) return keep(path, key, [&](NewImage& image) { receive(&image); });
  receive(nullptr);
  return mine;
}

}  // namespace

TokenImage::TokenImage(Bytes bytes, uint64_t key, bool verified) {
  if (bytes.size() < static_cast<int64_t>(sizeof(Header))) return;
  const Header header = header_of(bytes);
  const bool is_ours = header.magic == magic && header.version == version && header.key == key &&
                       (header.bytes_each == 2 || header.bytes_each == 4);
  if (!is_ours || header.tokens < 0 || header.marks < 0) return;
  // The size is computed in floating point, so that damaged numbers cannot overflow.
  const double wanted = static_cast<double>(sizeof(Header)) + 8.0 * static_cast<double>(header.marks) +
                        static_cast<double>(header.bytes_each) * static_cast<double>(header.tokens);
  if (wanted != static_cast<double>(bytes.size())) return;
  if (!verified || checksum_of(bytes) == header.checksum) bytes_ = std::move(bytes);
}

TokenImage TokenImage::of_file(const std::string& path, uint64_t key, bool verified) {
  try {
    return {Bytes::of_file(path), key, verified};
  } catch (const Error&) {
    return {};
  }
}

Tokens TokenImage::tokens() const {
  const Header header = header_of(bytes_);
  return {bytes_, static_cast<int64_t>(sizeof(Header)) + header.marks * 8, header.tokens,
          static_cast<int>(header.bytes_each)};
}

Marks TokenImage::marks() const { return {bytes_, sizeof(Header), header_of(bytes_).marks / 2}; }

TokenImage shared_tokens(const World& world, const TokenLayout& layout, const Encode& encode) {
  Communicator& communicator = world.communicator();
  const NoTimeout no_timeout(communicator);
  const uint64_t key = layout.key;
  const std::string path = path_of(key);
  const bool speaks_for_host = world.local_rank() == 0;
  Kept mine;
  const auto find = [&] {
    if (speaks_for_host && !mine.image) mine.image = found_at(path, key);
    mine.is_in_file = bool(mine.image);
  };
  const auto are_all_in_files = [&] {
    return communicator.on_every_rank(mine.is_in_file || !speaks_for_host);
  };
  find();
  if (!are_all_in_files()) {
    on_first_rank(world, [&] {
      if (!mine.image) mine = keep(path, key, [&](NewImage& image) { encode_to(image, layout, encode); });
    });
    // This host may share the cache folder of rank 0's host.
    if (!world.is_first()) find();
    mine = hand_out(world, key, mine, speaks_for_host && !mine.image, path);
  }
  // If local rank 0 of a host could not replace a damaged file, the file is still damaged. All other ranks
  // then verify it themselves.
  const bool are_whole = are_all_in_files();
  if (!speaks_for_host) mine.image = TokenImage::of_file(path, key, !are_whole);
  return hand_out(world, key, mine, !mine.image, {}).image;
}

TokenImage broadcast_tokens(const World& world, const TokenLayout& layout, const Encode& encode) {
  const NoTimeout no_timeout(world.communicator());
  Kept mine;
  on_first_rank(world, [&] {
    mine = keep({}, layout.key, [&](NewImage& image) { encode_to(image, layout, encode); });
  });
  return hand_out(world, layout.key, mine, !mine.image, {}).image;
}

}  // namespace lockstep
