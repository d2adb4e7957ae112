// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/core/clock.h"
#include "lockstep/net/socket.h"
#include "lockstep/pmix/port_guard.h"

namespace lockstep {
namespace {

/// Returns the user of a connection that this process made as `user`.
std::optional<uid_t> user_of_connection_by(uid_t user, bool is_closed_again = false) {
  const Socket listener = Socket::listen({.host = "127.0.0.1", .port = 0});
  const pid_t child = ::fork();
  if (child == 0) {
    if (user != ::geteuid() && ::setuid(user) != 0) ::_exit(1);
    Socket socket = Socket::connect(resolve(listener.address()).front(), after(10.0));
    if (is_closed_again) ::_exit(0);
    while (true) ::pause();
  }
  SocketAddress peer;
  listener.wait(POLLIN, after(10.0));
  if (is_closed_again) ::waitpid(child, nullptr, 0);
  const Socket connection = listener.accept(peer);
  const std::optional<uid_t> found = peer_user(connection.descriptor());
  EXPECT_EQ(listed_peer_user(connection.descriptor()), found);
  ::kill(child, SIGKILL);
  if (!is_closed_again) ::waitpid(child, nullptr, 0);
  return found;
}

TEST(PeerUser, IsTheUserOfTheProcessAtTheOtherEnd) {
  EXPECT_EQ(user_of_connection_by(::geteuid()), ::geteuid());
  const passwd* nobody = ::getpwnam("nobody");
  if (::geteuid() != 0 || nobody == nullptr) return;
  EXPECT_EQ(user_of_connection_by(nobody->pw_uid), nobody->pw_uid);
}

TEST(PeerUser, IsUnknownForAnEndThatIsClosed) {
  EXPECT_EQ(user_of_connection_by(::geteuid(), true), std::nullopt);
  EXPECT_EQ(peer_user(-1), std::nullopt);
  EXPECT_EQ(peer_user(STDIN_FILENO), std::nullopt);
}

}  // namespace
}  // namespace lockstep
