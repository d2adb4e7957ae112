// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/clock.h"
#include "lockstep/core/descriptor.h"
#include "lockstep/core/error.h"
#include "lockstep/net/addresses.h"

namespace lockstep {

/// An error: the other side of a connection is gone, or accepts no more data.
class ConnectionClosed : public Error {
 public:
  using Error::Error;
};

/// A non-blocking TCP socket. It listens, or is one end of a connection. It is closed with the object.
class Socket {
 public:
  Socket() = default;  ///< no socket

  /// Listens at an address of this host; port 0: any. Throws UserError with address and reason.
  static Socket listen(const Endpoint& address);
  /// Connects, from `own_address` of this host or any if it is empty. Throws Error with the reason alone.
  static Socket connect(const SocketAddress& address, Clock::time_point deadline,
                        std::string_view own_address = {});
  /// Accepts the next connection; `peer` gets its address. Returns no socket, with errno, if there is none.
  Socket accept(SocketAddress& peer) const;

  explicit operator bool() const { return bool(descriptor_); }
  int descriptor() const { return descriptor_.get(); }
  /// Returns the address and port of this side.
  Endpoint address() const;
  /// Returns the numeric address and port of the other side: "10.0.0.2:41234", "[fe80::1]:4000".
  std::string peer() const;

  /// Waits for input (POLLIN), or until connected or writable (POLLOUT). Returns false at the deadline.
  bool wait(short event, Clock::time_point deadline) const;
  /// Appends at most `most_bytes` of the received data. Returns false if there is none. Throws
  /// ConnectionClosed at the end of the connection.
  bool receive(std::string& text, size_t most_bytes) const;
  /// Receives `bytes` bytes. Throws ConnectionClosed, also if they do not arrive before the deadline.
  std::string receive_exactly(size_t bytes, Clock::time_point deadline) const;
  /// Sends all bytes. Throws ConnectionClosed, also if they are not accepted before the deadline.
  void send(std::string_view bytes, Clock::time_point deadline) const;

 private:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  static Socket make(const SocketAddress& address);

  Descriptor descriptor_;
};

/// Returns how many files and connections this process may have open.
size_t descriptor_limit();

/// Raises the limit of open files to `needed`, or to 65536 if that is more, as far as the system allows.
/// Throws UserError if that is too little. It names `whose` ("4 ranks"), the numbers and the limit to raise.
void provide_descriptors(size_t needed, const std::string& whose);

}  // namespace lockstep
