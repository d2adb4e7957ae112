// SPDX-License-Identifier: Apache-2.0
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "lockstep/core/error.h"
#include "lockstep/net/secret.h"

namespace lockstep {

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  const int got = RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), int(count));
  expect(got == 1, "the system has no random bytes");
  return bytes;
}

std::string authentication_code(std::string_view key, std::string_view text) {
  std::string code(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  const auto* made =
      HMAC(EVP_sha256(), key.data(), int(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), reinterpret_cast<unsigned char*>(code.data()), &size);
  expect(made != nullptr, "OpenSSL cannot compute HMAC-SHA256");
  code.resize(size);
  return code;
}

bool equal_in_constant_time(std::string_view left, std::string_view right) {
  return left.size() == right.size() && CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

}  // namespace lockstep
