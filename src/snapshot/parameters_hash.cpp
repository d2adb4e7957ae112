// SPDX-License-Identifier: Apache-2.0
#include "snapshot/parameters_hash.h"

#define XXH_INLINE_ALL
#if defined(__AVX512F__)
// The AVX-512 form makes gcc 12 warn of uninitialised values in its own intrinsics; the hash is the same.
#define XXH_VECTOR XXH_AVX2
#endif
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <set>
#include <xxhash.h>

#include "core/error.h"
#include "tensor/create.h"

namespace lockstep {

static_assert(std::endian::native == std::endian::little, "the hash is defined on little-endian bytes");

struct Hasher::State {
  XXH3_state_t xxh3;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh3); }
Hasher::~Hasher() = default;

void Hasher::add(std::span<const std::byte> piece) {
  XXH3_64bits_update(&state_->xxh3, piece.data(), piece.size());
}

uint64_t Hasher::value() const { return XXH3_64bits_digest(&state_->xxh3); }

uint64_t parameters_hash(std::vector<NamedTensor> parameters) {
  std::sort(parameters.begin(), parameters.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  Hasher hasher;
  std::set<const void*> seen;
  for (const NamedTensor& parameter : parameters) {
    if (!seen.insert(parameter.tensor.id()).second) continue;
    const Tensor on_cpu = to_stream(parameter.tensor, cpu_stream());
    const View view = on_cpu.view();
    const std::span name(parameter.name.c_str(), parameter.name.size() + 1);
    hasher.add(std::as_bytes(name));
    for (const int64_t extent : view.shape) hasher.add(std::as_bytes(std::span(&extent, 1)));
    hasher.add({static_cast<const std::byte*>(view.data), static_cast<size_t>(view.bytes())});
  }
  return hasher.value();
}

uint64_t hash_of(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint64_t hash_of(std::span<const std::span<const std::byte>> pieces) {
  Hasher hasher;
  for (const auto& piece : pieces) hasher.add(piece);
  return hasher.value();
}

std::string hash_text(uint64_t hash) {
  std::array<char, 16> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), hash, 16);
  const std::string text(digits.data(), end);
  return std::string(digits.size() - text.size(), '0') + text;
}

}  // namespace lockstep
