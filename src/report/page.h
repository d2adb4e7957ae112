// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns the text as content of an element or an attribute of HTML and XML. Bytes that are not UTF-8 and
/// characters that XML does not have become U+FFFD. A result of more than `most_bytes` is cut.
std::string escaped(std::string_view text, size_t most_bytes = std::string::npos);

/// Returns an element with this content: tag("td class=\"n\"", "7") is <td class="n">7</td>. The caller
/// escapes the content.
std::string tag(const std::string& opening, const std::string& content);

/// Returns a whole page. It loads nothing, and it is XML as well as HTML.
std::string page(const std::string& title, const std::string& body);

/// A table. Cells and heads are HTML. The first column has the names of the rows. A row with one cell is a
/// heading of those below it.
struct HtmlTable {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  bool has_numbers = false;  ///< the other columns are aligned to the right
  bool is_stacked = false;   ///< a phone shows the cells of a row below each other, with their heads
  std::vector<std::string> samples = {};  ///< of lines, before the heads

  std::string html() const;
};

// Texts of numbers for people.

/// Returns a number with its groups of three digits apart: "1 200", with a narrow space that does not break.
std::string whole_text(int64_t number);
/// Returns a number with about four digits: "0.0003", "12.35", "27940", "3e-05".
std::string short_number(double number);
/// Returns a duration: "41 ms", "2.5 s", "2 min 41 s", "5 h 3 min", "3 d 4 h".
std::string duration_text(double seconds);
/// Returns a share of a whole as CSS writes it: "12.35%".
std::string percent_text(double share);
/// Returns a time of a clock in UTC: "2026-11-29 23:13:52".
std::string time_text(double unix_seconds);

}  // namespace lockstep
