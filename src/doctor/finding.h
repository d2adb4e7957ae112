// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep {

enum class Verdict { ok, warning, problem };

/// What one check says.
struct Finding {
  std::string name;
  Verdict verdict = Verdict::ok;
  std::string found;
  std::string advice = {};  ///< what to do; empty if all is well
};

/// A line for each, and one with the advice below those that have any.
std::string to_text(const std::vector<Finding>& findings);

/// {"findings": [{"name", "verdict", "found", "advice"}, ...], "problems": n, "warnings": n}
std::string to_json(const std::vector<Finding>& findings);
/// Reads what to_json() wrote.
std::vector<Finding> findings_from_json(const std::string& text);

}  // namespace lockstep
