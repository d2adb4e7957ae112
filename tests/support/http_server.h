// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <functional>
#include <mutex>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace lockstep {

/// Returns a reply with a status such as "200 OK", a body and perhaps more headers ("name: value\r\n").
inline std::string http_reply(const std::string& status, const std::string& body = "",
                              const std::string& headers = "") {
  return "HTTP/1.1 " + status + "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + headers + "\r\n" + body;
}

/// A server on this machine that answers each request by a function of its text and records it. An empty
/// answer cuts the connection. Only an answer with "Connection: keep-alive" keeps it.
class HttpServer {
 public:
  using Answer = std::function<std::string(const std::string& request)>;
  /// An answer that can also write to the connection itself.
  using SlowAnswer = std::function<std::string(const std::string& request, int peer)>;

  explicit HttpServer(Answer answer)
      : HttpServer(
            [answer = std::move(answer)](const std::string& request, int) { return answer(request); }) {}
  explicit HttpServer(SlowAnswer answer)
      : answer_(std::move(answer)), socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    socklen_t size = sizeof(address);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    ::listen(socket_, 16);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  /// Returns the headers of a request and the body that they announce.
  static std::string receive(int peer) {
    std::string request;
    size_t wanted = std::string::npos;
    char buffer[4096];
    while (request.size() < wanted) {
      const ssize_t count = ::recv(peer, buffer, sizeof(buffer), 0);
      if (count <= 0) break;
      request.append(buffer, static_cast<size_t>(count));
      const size_t end = request.find("\r\n\r\n");
      if (end == std::string::npos) continue;
      const size_t length = request.find("Content-Length: ");
      wanted = end + 4 + (length < end ? std::stoul(request.substr(length + 16)) : 0);
    }
    return request;
  }

  void serve() {
    for (int peer = 0; (peer = ::accept(socket_, nullptr, nullptr)) >= 0; ::close(peer))
      while (answer_one(peer)) continue;
  }

  /// Answers one request. Returns whether the connection is kept.
  bool answer_one(int peer) {
    const std::string request = receive(peer);
    if (request.empty()) return false;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    const std::string reply = answer_(request, peer);
    ::send(peer, reply.data(), reply.size(), MSG_NOSIGNAL);
    return reply.find("Connection: keep-alive") != std::string::npos;
  }

  SlowAnswer answer_;
  int socket_;
  int port_ = 0;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
};

}  // namespace lockstep
