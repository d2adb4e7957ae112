// SPDX-License-Identifier: Apache-2.0
// strangers <endpoint> <silent> <connections>: connects to a port without knowing the secret. <silent>
// connections stay open until this process ends. Of <connections> others, one third hangs up, one third sends
// HTTP, and one third guesses.

#include <cstdlib>
#include <iostream>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "support/relay.h"

namespace lockstep {
namespace {

/// Makes one connection, whose port does not wait for a minute after its end. Returns false if it cannot be
/// made.
bool call(const std::string& endpoint, int number) {
  const Socket socket = plain_connection(endpoint);
  if (!socket) return false;
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  const std::string words = number % 3 == 0   ? ""
                            : number % 3 == 1 ? "GET / HTTP/1.1\r\n\r\n"
                                              : "lockstep-chan-1\n" + std::string(64, 'x');
  try {
    socket.send(words, after(relay_seconds));
  } catch (const ConnectionClosed&) {
    // The listener has already closed the connection.
  }
  return true;
}

int run(const std::string& endpoint, int silent, int connections) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  int made = 0;
  std::vector<Socket> waiting;
  for (int i = 0; i < silent; ++i) waiting.push_back(plain_connection(endpoint));
  for (int i = 0; i < connections; ++i) made += call(endpoint, i) ? 1 : 0;
  std::cout << "made " << made << " of " << connections << " connections" << std::endl;
  while (true) ::pause();
}

}  // namespace
}  // namespace lockstep

int main(int argument_count, char** arguments) {
  if (argument_count != 4) return 2;
  return lockstep::run(arguments[1], std::atoi(arguments[2]), std::atoi(arguments[3]));
}
