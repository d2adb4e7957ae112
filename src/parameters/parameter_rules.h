// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/parameters/parameter_layout.h"
#include "lockstep/parameters/update_options.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

/// Returns whether a name matches a pattern. `*` matches any number of characters, including dots and none.
/// `?` matches one character.
bool matches_pattern(std::string_view pattern, std::string_view name);

namespace detail {

/// The parameters that train.freeze and train.groups treat in their own way.
class ParameterRules {
 public:
  /// Freezes the parameters that match train.freeze. Throws UserError naming a malformed or unmatched entry.
  ParameterRules(const OptimizerOptions& options, const std::vector<NamedTensor>& parameters);

  /// Returns the group of a parameter that is usually in `usual`, with the settings of train.groups.
  ParameterGroup group(const std::string& name, const ParameterGroup& usual) const;
  /// Returns a line for each of the keys that is set, to be logged. It begins with a new line.
  const std::string& description() const { return description_; }

 private:
  void freeze(const std::string& list, const std::vector<NamedTensor>& parameters);
  void divide(const std::string& list, const std::vector<NamedTensor>& parameters);

  std::map<std::string, std::map<std::string, double>> settings_;  ///< [parameter], of train.groups
  std::string description_;
};

}  // namespace detail

using detail::ParameterRules;

}  // namespace lockstep
