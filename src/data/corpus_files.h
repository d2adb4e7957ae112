// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "lockstep/core/file.h"

namespace lockstep {

/// Returns the path of a file in $LOCKSTEP_DATA_DIR, or an empty string if it is not there.
std::string find_in_data_folder(const std::string& file);

/// Returns a file for a text that is deleted with it. Throws UserError if TMPDIR is not a folder.
std::shared_ptr<NewFile> temporary_text();

}  // namespace lockstep
