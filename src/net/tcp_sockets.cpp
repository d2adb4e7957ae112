// SPDX-License-Identifier: Apache-2.0
#include "net/tcp_sockets.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace lockstep {

std::vector<TcpSocket> tcp_sockets() {
  std::vector<TcpSocket> all;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    std::getline(lines, line);  // the names of the columns
    while (std::getline(lines, line)) {
      std::ranges::replace(line, ':', ' ');
      std::istringstream words(line);
      TcpSocket socket;
      std::string skipped;
      words >> skipped >> socket.local >> std::hex >> socket.local_port >> socket.remote >>
          socket.remote_port >> socket.state;
      for (int i = 0; i < 5; ++i) words >> skipped;  // queues, timer, retries
      if (words >> std::dec >> socket.user >> skipped >> socket.inode) all.push_back(socket);
    }
  }
  return all;
}

}  // namespace lockstep
