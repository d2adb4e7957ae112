// SPDX-License-Identifier: Apache-2.0
#include "language/token_file.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <limits>

#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"

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

uint64_t checksum_of(const std::byte* memory, int64_t bytes) {
  return hash_of(std::string_view(reinterpret_cast<const char*>(memory) + sizeof(Header),
                                  static_cast<size_t>(bytes) - sizeof(Header)));
}

Header header_of(const std::byte* memory) {
  Header header{};
  std::memcpy(&header, memory, sizeof header);
  return header;
}

std::shared_ptr<std::byte> allocate(size_t bytes) {
  const auto owner = std::make_shared<std::vector<uint64_t>>((bytes + 7) / 8);
  return {owner, reinterpret_cast<std::byte*>(owner->data())};
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

/// Writes the image to a file and maps it. Returns an empty image if that fails. A valid file is never
/// replaced, because other processes may have mapped it.
TokenImage kept_at(const std::string& path, uint64_t key, const TokenImage& image) {
  try {
    expect(!path.empty(), "neither XDG_CACHE_HOME nor HOME is set");
    fs::create_directories(fs::path(path).parent_path());
    const std::array pieces = {image.bytes()};
    if (!write_absent_file(path, pieces) && !TokenImage::of_file(path, key, true)) write_file(path, pieces);
    TokenImage kept = TokenImage::of_file(path, key, true);
    expect(bool(kept), path, " has other bytes than were written");
    return kept;
  } catch (const std::exception& failure) {
    log_warning(concat("the encoded text cannot be kept in a file, so each rank keeps it in memory: ",
                       failure.what()));
    return {};
  }
}

/// Sends rank 0's image to the ranks that need it. They return it; the others return `mine`. All ranks call
/// it.
TokenImage hand_out(const World& world, uint64_t key, const TokenImage& mine, bool needs) {
  Communicator& communicator = world.communicator();
  const int64_t wanted = needs ? 1 : 0;
  std::vector<int64_t> all(static_cast<size_t>(world.size()));
  communicator.all_gather(&wanted, sizeof wanted, all.data());
  auto bytes = static_cast<int64_t>(mine.bytes().size());
  communicator.broadcast(&bytes, sizeof bytes, 0);
  const auto received = needs ? allocate(static_cast<size_t>(bytes)) : nullptr;
  constexpr int64_t piece = int64_t{64} << 20;
  for (int64_t begin = 0; begin < bytes; begin += piece) {
    const int64_t size = std::min(piece, bytes - begin);
    std::vector<Message> sends, receives;
    for (int rank = 1; rank < world.size() && world.is_first(); ++rank)
      if (all[static_cast<size_t>(rank)] != 0)
        sends.push_back({rank, const_cast<std::byte*>(mine.bytes().data()) + begin, size});
    if (needs) receives.push_back({0, received.get() + begin, size});
    communicator.exchange(sends, receives);
  }
  if (!needs) return mine;
  const TokenImage image(key, received, bytes);
  expect(bool(image), "the encoded text did not arrive whole");
  return image;
}

}  // namespace

TokenImage::TokenImage(uint64_t key, const std::vector<int32_t>& ids, std::span<const int64_t> marks,
                       int64_t vocabulary_size) {
  const uint32_t bytes_each = vocabulary_size <= 65536 ? 2 : 4;
  bytes_ = static_cast<int64_t>(sizeof(Header) + marks.size_bytes() + ids.size() * bytes_each);
  const auto memory = allocate(static_cast<size_t>(bytes_));
  std::byte* const numbers = memory.get() + sizeof(Header);
  if (!marks.empty()) std::memcpy(numbers, marks.data(), marks.size_bytes());
  std::byte* const body = numbers + marks.size_bytes();
  if (bytes_each == 4 && !ids.empty()) std::memcpy(body, ids.data(), ids.size() * 4);
  if (bytes_each == 2)
    for (size_t i = 0; i < ids.size(); ++i)
      reinterpret_cast<uint16_t*>(body)[i] = static_cast<uint16_t>(ids[i]);
  const Header header{.magic = magic,
                      .version = version,
                      .bytes_each = bytes_each,
                      .key = key,
                      .checksum = checksum_of(memory.get(), bytes_),
                      .tokens = std::ssize(ids),
                      .marks = std::ssize(marks)};
  std::memcpy(memory.get(), &header, sizeof header);
  memory_ = memory;
}

TokenImage::TokenImage(uint64_t key, std::shared_ptr<const std::byte> memory, int64_t bytes)
    : memory_(std::move(memory)), bytes_(bytes) {
  if (!is_whole(key, true)) *this = {};
}

TokenImage TokenImage::of_file(const std::string& path, uint64_t key, bool verified) {
  const MappedFile file = map_to_read(path);
  TokenImage image;
  image.memory_ = file.memory;
  image.bytes_ = file.bytes;
  return image.is_whole(key, verified) ? image : TokenImage();
}

bool TokenImage::is_whole(uint64_t key, bool verified) const {
  if (!memory_ || bytes_ < static_cast<int64_t>(sizeof(Header))) return false;
  const Header header = header_of(memory_.get());
  const bool is_ours = header.magic == magic && header.version == version && header.key == key &&
                       (header.bytes_each == 2 || header.bytes_each == 4);
  if (!is_ours || header.tokens < 0 || header.marks < 0) return false;
  // The size is computed in floating point, so that damaged numbers cannot overflow.
  const double wanted = static_cast<double>(sizeof(Header)) + 8.0 * static_cast<double>(header.marks) +
                        static_cast<double>(header.bytes_each) * static_cast<double>(header.tokens);
  if (wanted != static_cast<double>(bytes_)) return false;
  return !verified || checksum_of(memory_.get(), bytes_) == header.checksum;
}

Tokens TokenImage::tokens() const {
  const Header header = header_of(memory_.get());
  const std::byte* const ids = memory_.get() + sizeof(Header) + header.marks * 8;
  return {{memory_, ids}, header.tokens, static_cast<int>(header.bytes_each)};
}

std::vector<int64_t> TokenImage::marks() const {
  std::vector<int64_t> marks(static_cast<size_t>(header_of(memory_.get()).marks));
  if (!marks.empty()) std::memcpy(marks.data(), memory_.get() + sizeof(Header), marks.size() * 8);
  return marks;
}

TokenImage shared_tokens(const World& world, uint64_t key, const std::function<TokenImage()>& encode) {
  const NoTimeout no_timeout(world.communicator());
  const std::string path = path_of(key);
  const bool speaks_for_host = world.local_rank() == 0;
  TokenImage mine;
  if (speaks_for_host) mine = found_at(path, key);
  bool is_mapped = bool(mine);
  const auto keep = [&](const TokenImage& image) {
    mine = kept_at(path, key, image);
    is_mapped = bool(mine);
    if (!is_mapped) mine = image;
  };
  if (!world.communicator().on_every_rank(is_mapped || !speaks_for_host)) {
    on_first_rank(world, [&] {
      if (!mine) keep(encode());
    });
    // This host may share the cache folder of rank 0's host.
    if (speaks_for_host && !mine) {
      mine = found_at(path, key);
      is_mapped = bool(mine);
    }
    const bool needs = speaks_for_host && !mine;
    mine = hand_out(world, key, mine, needs);
    if (needs) keep(mine);
  }
  // If local rank 0 of a host could not replace a damaged file, the file is still damaged. All other ranks
  // then verify it themselves.
  const bool are_whole = world.communicator().on_every_rank(is_mapped || !speaks_for_host);
  if (!speaks_for_host) mine = TokenImage::of_file(path, key, !are_whole);
  return hand_out(world, key, mine, !mine);
}

TokenImage broadcast_tokens(const World& world, uint64_t key, const std::function<TokenImage()>& encode) {
  const NoTimeout no_timeout(world.communicator());
  TokenImage mine;
  on_first_rank(world, [&] { mine = encode(); });
  return hand_out(world, key, mine, !mine);
}

}  // namespace lockstep
