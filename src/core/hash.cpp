// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/hash.h"

#define XXH_INLINE_ALL
#if defined(__AVX512F__)
// gcc 12 warns of uninitialised values in its AVX-512 intrinsics. The AVX2 version has the same hash.
#define XXH_VECTOR XXH_AVX2
#endif
#include <xxhash.h>

#include "lockstep/core/text.h"

namespace lockstep {

struct Hasher::State {
  XXH3_state_t xxh3;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh3); }
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::add(std::span<const std::byte> piece) {
  XXH3_64bits_update(&state_->xxh3, piece.data(), piece.size());
}

void Hasher::reset() { XXH3_64bits_reset(&state_->xxh3); }

uint64_t Hasher::value() const { return XXH3_64bits_digest(&state_->xxh3); }

uint64_t hash_of(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string hash_text(uint64_t hash) { return hexadecimal(hash, 16); }

}  // namespace lockstep
