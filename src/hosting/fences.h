// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hosting/host_messages.h"

namespace lockstep {

/// Contributions of nodes to PMIx's fences, in which ranks exchange addresses. A fence is over when every
/// node that has one of its participants has contributed. Fences of different participants are independent.
class Fences {
 public:
  /// `map` must live as long as this object.
  explicit Fences(const RankMap& map) : map_(map) {}

  struct Completed {
    std::vector<int> nodes;
    std::string data;  ///< of these nodes, in this order
  };

  /// Adds a node's contribution. Returns the fence if it is over now. Throws Error if a participant is not a
  /// rank or the node has none of them.
  std::optional<Completed> add(int node, const std::string& participants, const std::string& data);

 private:
  std::vector<int> nodes_of(const std::string& participants) const;

  const RankMap& map_;
  /// For each set of participants, what each node has contributed to fences that are not over, oldest first.
  std::map<std::string, std::map<int, std::deque<std::string>>> waiting_;
};

}  // namespace lockstep
