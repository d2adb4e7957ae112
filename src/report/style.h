// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep {

// The style and the script of a page. Neither has a character that XML would read as markup.

/// Colours differ for people with any kind of colour blindness: they follow Okabe and Ito, and dashes tell
/// lines 5 to 12 apart.
extern const char* const page_style;
/// Shows the values of a chart at the pointer. Without it the page shows everything else.
extern const char* const page_script;

}  // namespace lockstep
