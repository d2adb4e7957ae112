// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "documents/execution.h"

namespace lockstep::documents {

/// What the document shall show in the place of `shown`: line by line what was printed, "..." kept where the
/// lines around it are found again by their shape; else as many lines of the beginning and the end as before.
std::vector<std::string> renewed_output(const std::vector<std::string>& shown,
                                        const std::vector<std::string>& printed);

/// The document's text with the outputs of these commands as they were printed. An output that meets what is
/// shown, but for what varies from run to run, stays as it is. Throws std::runtime_error, with the line, for
/// a command that failed.
std::string renewed_text(const Document& document, const std::vector<Executed>& all);

}  // namespace lockstep::documents
