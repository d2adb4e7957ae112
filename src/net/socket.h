// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "core/descriptor.h"
#include "core/error.h"
#include "net/addresses.h"

namespace lockstep {

/// The other side of a connection is gone, or takes nothing any more.
class ConnectionClosed : public Error {
 public:
  using Error::Error;
};

/// A TCP socket that never blocks: it listens, or is one end of a connection. Closed with the object.
class Socket {
 public:
  Socket() = default;  ///< none

  /// At an address of this host; port 0: the system chooses one. UserError with address and reason.
  static Socket listen(const Endpoint& address);
  /// `own_address`: which of this host's to use, empty: any. Throws Error with the reason alone.
  static Socket connect(const SocketAddress& address, Clock::time_point deadline,
                        std::string_view own_address = {});
  /// The next connection to one that listens, and whose it is; none, with errno, if there is none.
  Socket accept(SocketAddress* peer = nullptr) const;

  explicit operator bool() const { return bool(descriptor_); }
  int descriptor() const { return descriptor_.get(); }
  /// This side's.
  Endpoint address() const;
  /// The other side's number and port: "10.0.0.2:41234", "[fe80::1]:4000".
  std::string peer() const;

  /// Waits until it can be read (POLLIN), is connected or can be written (POLLOUT). False at the deadline.
  bool wait(short event, Clock::time_point deadline) const;
  /// Appends at most so many bytes of what has come; false if nothing has. Throws ConnectionClosed at the
  /// end.
  bool receive(std::string& text, size_t most_bytes) const;
  /// Throws ConnectionClosed.
  std::string receive_exactly(size_t bytes, Clock::time_point deadline) const;
  /// All of them. Throws ConnectionClosed, also where they are not taken before the deadline.
  void send(std::string_view bytes, Clock::time_point deadline) const;

 private:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  static Socket make(const SocketAddress& address);

  Descriptor descriptor_;
};

/// How many files and connections this process may have open.
size_t descriptor_limit();

/// Raises the limit to many more than are needed, as far as the system allows. UserError if that is too few:
/// `whose` ("4 ranks") need so many, and what to raise.
void provide_descriptors(size_t needed, const std::string& whose);

}  // namespace lockstep
