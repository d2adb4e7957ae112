// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <poll.h>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/descriptor.h"

namespace lockstep {

/// A standard stream of a rank on its way through the keeper. The rank waits in its write() while too many of
/// its bytes wait for the console, which is the keeper's own stream.
class RankStream {
 public:
  struct Route {
    int console = -1;          ///< a descriptor; -1: none
    std::string tag = {};      ///< begins each line on the console; empty: bytes pass unchanged
    std::string file = {};     ///< the path of a file that gets the bytes, too; empty: none
    bool is_terminal = false;  ///< the rank writes to a terminal, so that programs write each line at once
  };

  /// Makes the file's folder and appends to the file. Throws UserError if the path cannot be such a file, and
  /// Error if no pipe can be made.
  explicit RankStream(const Route& route);

  /// The descriptor that the rank writes to.
  int input() const { return input_.get(); }
  /// Closes input() in this process: call it when the rank has started.
  void close_input() { input_.reset(); }

  /// Adds the descriptors that pass_on() waits for.
  void watch(std::vector<pollfd>& entries) const;
  /// Takes bytes from the rank and passes on what the console accepts. It does not wait, and it moves a
  /// bounded number of bytes.
  void pass_on();
  /// Takes the last bytes of a rank that has ended. pass_on() passes them on.
  void take_rest();

  /// Adds bytes that the rank has not written. They are not among last_bytes().
  void add(std::string_view bytes);

  /// Keeps bytes back, as if the console accepted none, or ends that.
  void hold(bool is_held) { is_held_ = is_held; }
  /// Lets more bytes wait for the console, because a rank that is to stop must not wait for a reader.
  void let_rank_stop();
  /// Returns whether the rank has to wait when it writes.
  bool is_blocked() const { return rank_ && pending_.size() >= most_pending_; }
  /// Returns whether bytes wait for the console.
  bool has_pending() const { return !pending_.empty(); }
  /// Returns why the file or the console lacks bytes; empty: they have all, or the console's reader has left.
  const std::string& problem() const { return problem_; }
  /// The last bytes that the rank has written.
  const std::string& last_bytes() const { return last_bytes_; }

 private:
  bool open_terminal();
  void open_file();
  void take(size_t most_bytes);
  void add_lines(std::string_view bytes);
  void end_line();
  void write_file(std::string_view bytes);
  void write_pending();

  Route route_;  ///< its console is -1 once that is gone
  Descriptor own_console_;
  Descriptor rank_, input_;  ///< the two ends
  Descriptor file_;
  std::string problem_;
  std::string line_;     ///< the begin of a line that gets a tag
  std::string pending_;  ///< bytes for the console
  size_t most_pending_;
  std::string last_bytes_;
  bool is_held_ = false;
};

}  // namespace lockstep
