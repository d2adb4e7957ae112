// SPDX-License-Identifier: Apache-2.0
#include "net/secret.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include "core/descriptor.h"
#include "core/error.h"
#include "core/text.h"

namespace lockstep {
namespace {

constexpr size_t shortest_bytes = 16;
constexpr size_t longest_bytes = 4096;

}  // namespace

Secret Secret::random() { return Secret(hexadecimal(random_bytes(32))); }

Secret Secret::from_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  require(bool(file), "cannot read the secret ", path, ": ", std::strerror(errno));
  struct stat facts {};
  require(::fstat(file.get(), &facts) == 0 && S_ISREG(facts.st_mode), "the secret ", path, " is not a file");
  require((facts.st_mode & (S_IRWXG | S_IRWXO)) == 0, "others may read the secret ", path, ": chmod 600 ",
          path);
  require(facts.st_uid == ::geteuid() || facts.st_uid == 0, "the secret ", path, " belongs to another user");
  std::string text(longest_bytes + 1, '\0');
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  require(count >= 0, "cannot read the secret ", path, ": ", std::strerror(errno));
  require(count <= ssize_t(longest_bytes), "the secret ", path, " has more than ", longest_bytes, " bytes");
  text.resize(size_t(count));
  return from_text(text, "the secret " + path);
}

Secret Secret::from_environment(const char* variable, const std::string& advice) {
  char* text = std::getenv(variable);
  require(text != nullptr && *text != '\0', advice);
  Secret secret = from_text(text, variable);
  std::fill_n(text, std::strlen(text), '\0');
  ::unsetenv(variable);
  return secret;
}

Secret Secret::from_text(const std::string& text, const std::string& where) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  std::string bytes = text.substr(0, last == std::string::npos ? 0 : last + 1);
  require(bytes.size() >= shortest_bytes, where, " has ", bytes.size(), " bytes, ", shortest_bytes,
          " are the least: make one with openssl rand -hex 32");
  return Secret(std::move(bytes));
}

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
