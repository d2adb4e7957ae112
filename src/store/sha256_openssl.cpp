// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <memory>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/store/sha256.h"

namespace lockstep {

std::string sha256(std::string_view bytes) {
  const std::array pieces = {std::as_bytes(std::span(bytes))};
  return sha256(pieces);
}

std::string sha256(Pieces pieces) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int digest_bytes = 0;
  bool done = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (const auto& piece : pieces)
    done = done && EVP_DigestUpdate(context.get(), piece.data(), piece.size()) == 1;
  done = done && EVP_DigestFinal_ex(context.get(), digest.data(), &digest_bytes) == 1;
  expect(done, "OpenSSL cannot compute SHA-256");
  return hexadecimal({reinterpret_cast<const char*>(digest.data()), digest_bytes});
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> code{};
  unsigned int code_bytes = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const auto* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes, text.size(),
                          code.data(), &code_bytes);
  expect(made != nullptr, "OpenSSL cannot compute HMAC-SHA256");
  return {reinterpret_cast<const char*>(code.data()), code_bytes};
}

}  // namespace lockstep
