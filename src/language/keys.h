// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/language/text_options.h"

namespace lockstep {

template <class Options>
class KeyRows;

// The keys of the options.
KeyRows<TextOptions> text_rows();
/// Returns the value of a key of these options.
std::string value_of(const TextOptions& text, const std::string& key);

}  // namespace lockstep
