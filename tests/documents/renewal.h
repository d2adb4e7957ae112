// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "documents/execution.h"

namespace lockstep::documents {

/// Returns the output that the document should show instead of `shown`. If the shown lines are found again
/// with other numbers, each is replaced and each "..." stays. Otherwise the beginning and the end of
/// `printed` are kept, with the same numbers of lines as before.
std::vector<std::string> renewed_output(const std::vector<std::string>& shown,
                                        const std::vector<std::string>& printed);

/// Returns the document's text with the printed outputs of these commands. If an output differs only in
/// values that vary from run to run, the shown text stays. Throws std::runtime_error, with the line, for a
/// command that failed.
std::string renewed_text(const Document& document, const std::vector<Executed>& all);

}  // namespace lockstep::documents
