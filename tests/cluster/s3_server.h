// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/program.h"

namespace lockstep {

/// Returns a Python that has moto, or an empty text if there is none. scripts/install_deps.sh --cluster makes
/// one, or LOCKSTEP_CLUSTER_PYTHON names one.
inline std::string python_with_moto() {
  const char* given = std::getenv("LOCKSTEP_CLUSTER_PYTHON");
  for (const std::string& python : {std::string(LOCKSTEP_SOURCE_DIR) + "/.cache/cluster-venv/bin/python",
                                    std::string(given ? given : "")})
    if (!python.empty() && std::filesystem::exists(python) &&
        run_command(python + " -c 'import moto.server, boto3'").exit_code == 0)
      return python;
  return "";
}

/// A process of tests/cluster/s3_server.py. It ends with its owner, however that ends.
class S3Server {
 public:
  /// Starts the server and waits for its first line, which has the addresses and keys. runs() returns whether
  /// the line arrived. The server writes the certificate of its encrypted port to `certificate`.
  S3Server(const std::string& python, const std::string& certificate) {
    int to_server[2] = {};
    int from_server[2] = {};
    if (::pipe2(to_server, O_CLOEXEC) != 0 || ::pipe2(from_server, O_CLOEXEC) != 0) return;
    const std::string script = LOCKSTEP_SOURCE_DIR "/tests/cluster/s3_server.py";
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(to_server[0], STDIN_FILENO);
      ::dup2(from_server[1], STDOUT_FILENO);
      ::execl(python.c_str(), python.c_str(), script.c_str(), "--certificate", certificate.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(to_server[0]);
    ::close(from_server[1]);
    input_ = to_server[1];
    const std::string line = read_line(from_server[0]);
    ::close(from_server[0]);
    if (!line.empty()) description_ = nlohmann::json::parse(line);
  }
  ~S3Server() {
    ::close(input_);
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
  }
  S3Server(const S3Server&) = delete;
  S3Server& operator=(const S3Server&) = delete;

  bool runs() const { return !description_.is_null(); }
  std::string plain() const { return description_["plain"]; }
  std::string faulty() const { return description_["faulty"]; }
  std::string tls() const { return description_["tls"]; }
  std::string bucket() const { return description_["bucket"]; }
  std::string access_key(const std::string& user) const { return description_[user]["access_key"]; }
  std::string secret_key(const std::string& user) const { return description_[user]["secret_key"]; }

 private:
  static std::string read_line(int descriptor) {
    std::string line;
    pollfd waiting{.fd = descriptor, .events = POLLIN, .revents = 0};
    constexpr int deadline_milliseconds = 90'000;
    while (!line.ends_with('\n') && ::poll(&waiting, 1, deadline_milliseconds) == 1) {
      char byte = 0;
      if (::read(descriptor, &byte, 1) != 1) return "";
      line += byte;
    }
    return line;
  }

  pid_t process_ = -1;
  int input_ = -1;
  nlohmann::json description_;
};

}  // namespace lockstep
