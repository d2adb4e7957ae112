// SPDX-License-Identifier: Apache-2.0
// The ports that a run of one host opens, and what a stranger can do with them.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <set>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/core/descriptor.h"
#include "lockstep/net/addresses.h"
#include "tests/elastic/lockrun_job.h"

namespace lockstep {
namespace {

/// A listening TCP socket and its process.
struct Port {
  TcpSocket socket;
  pid_t process = 0;
};

/// Returns the listening sockets of these processes.
std::vector<Port> open_ports(const std::vector<pid_t>& processes) {
  std::map<std::string, pid_t> owners;  // keyed by the socket's inode
  for (const pid_t process : processes) {
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator(concat("/proc/", process, "/fd"), gone)) {
      const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
      if (target.starts_with("socket:[")) owners[target.substr(8, target.size() - 9)] = process;
    }
  }
  std::vector<Port> ports;
  for (const TcpSocket& socket : tcp_sockets())
    if (socket.state == TCP_LISTEN && owners.contains(socket.inode))
      ports.push_back({socket, owners[socket.inode]});
  return ports;
}

/// Sends `bytes` to a port of the loopback address. Returns true if the other side has closed the connection
/// without an answer.
bool is_turned_away(int port, const std::string& bytes) {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return true;
  ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  pollfd answer{socket.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&answer, 1, 2000) == 1 && ::recv(socket.get(), &byte, 1, 0) <= 0;
}

/// Returns the result of the body in a process of another user. Only root can start one.
bool holds_for_another_user(const std::function<bool()>& body) {
  const passwd* nobody = ::getpwnam("nobody");
  const pid_t child = ::fork();
  if (child == 0) ::_exit(nobody != nullptr && ::setuid(nobody->pw_uid) == 0 && body() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class OpenPorts : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(program("lockrun_host"))) GTEST_SKIP() << "there is no lockrun_host";
    ::unsetenv("OMPI_MCA_btl");  // a choice of the user takes precedence
  }
};

// Loading Open MPI 5 takes 100 ms, and a start loads lockrun three times.
TEST(LockrunProgram, DoesNotLoadMpi) {
  for (const char* name : {"lockrun", "lockrun_host"})
    EXPECT_EQ(run_command("ldd " + program(name)).out.find("libmpi"), std::string::npos) << name;
}

TEST_F(OpenPorts, AreOnTheLoopbackAddressAlone) {
  LockrunJob job("--nproc 2", 100000);
  ASSERT_TRUE(job.reaches_step(5)) << job.errors();
  std::multiset<pid_t> processes;
  for (const Port& port : open_ports(job.processes())) {
    EXPECT_EQ(port.socket.local, "0100007F") << port.socket.local_port;
    processes.insert(port.process);
  }
  EXPECT_EQ(processes, (std::multiset<pid_t>{job.id(), job.launchers().at(0)})) << "lockrun and lockrun_host";
}

// The PMIx library would read what they send, and print errors or wait for more.
TEST_F(OpenPorts, TurnOtherUsersAwayAndTheRunGoesOn) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can start a process of another user";
  LockrunJob job("--nproc 2", 150, "0:1:121:kill");
  ASSERT_TRUE(job.reaches_step(5)) << job.errors();
  int port = 0;
  for (const Port& one : open_ports(job.launchers())) port = one.socket.local_port;
  ASSERT_NE(port, 0);
  EXPECT_TRUE(holds_for_another_user([port] {
    bool all = true;
    for (int i = 0; i < 10000; ++i) all &= is_turned_away(port, std::string(i % 100, char(i)));
    return all;
  }));
  EXPECT_EQ(job.exit_code(), 0) << job.errors();
  EXPECT_EQ(job.starts(), "0 2 0\n1 2 120\n");
  EXPECT_EQ(job.errors().find("PMIX"), std::string::npos) << job.errors();
  EXPECT_EQ(job.errors().find("refused"), std::string::npos) << job.errors();
}

}  // namespace
}  // namespace lockstep
