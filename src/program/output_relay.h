// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <thread>

#include "core/descriptor.h"

namespace lockstep {

/// A pipe whose contents a thread writes to a descriptor of this process. Children that write to the pipe do
/// not notice when the reader of that descriptor is gone: the thread then reads on and drops the contents.
class OutputRelay {
 public:
  /// Throws Error if no pipe can be made.
  explicit OutputRelay(int to);
  /// Passes on what the pipe holds, and closes it. A reader that has stopped has a second for it.
  ~OutputRelay();
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  /// The end of the pipe for children.
  int input() const { return input_.get(); }

 private:
  void relay();
  /// Passes on at most `most_bytes`, until nothing is there.
  void pass_on(size_t most_bytes);
  /// Returns false if the reader is gone, or does not read although the relay ends.
  bool deliver(std::string_view bytes);

  int to_;
  bool has_reader_ = true;
  Descriptor output_, input_, end_;  ///< `end_` becomes readable when the relay has to end
  std::thread thread_;
};

}  // namespace lockstep
