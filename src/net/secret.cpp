// SPDX-License-Identifier: Apache-2.0
#include "lockstep/net/secret.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>

#include "lockstep/core/descriptor.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr size_t shortest_bytes = 16;
constexpr size_t longest_bytes = 4096;

}  // namespace

Secret Secret::random() { return Secret(hexadecimal(random_bytes(32))); }

Secret Secret::from_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  require(bool(file), "cannot read the secret ", path, ": ", std::strerror(errno));
  struct stat facts {};
  require(::fstat(file.get(), &facts) == 0 && S_ISREG(facts.st_mode), "the secret ", path, " is not a file");
  require((facts.st_mode & (S_IRWXG | S_IRWXO)) == 0, "others may read the secret ", path, ": chmod 600 ",
          shell_quoted(path));
  require(facts.st_uid == ::geteuid() || facts.st_uid == 0, "the secret ", path, " belongs to another user");
  std::string text(longest_bytes + 1, '\0');
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  require(count >= 0, "cannot read the secret ", path, ": ", std::strerror(errno));
  require(count <= ssize_t(longest_bytes), "the secret ", path, " has more than ", longest_bytes, " bytes");
  text.resize(size_t(count));
  return from_text(text, "the secret " + path);
}

Secret Secret::from_environment(const char* variable, const std::string& advice) {
  const std::string text = environment(variable);
  require(!text.empty(), advice);
  Secret secret = from_text(text, variable);
  erase_from_environment(variable);
  return secret;
}

Secret Secret::from_text(const std::string& text, const std::string& where) {
  std::string bytes = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  require(bytes.size() >= shortest_bytes, where, " has ", bytes.size(), " bytes, but at least ",
          shortest_bytes, " are needed: make one with openssl rand -hex 32");
  return Secret(std::move(bytes));
}

}  // namespace lockstep
