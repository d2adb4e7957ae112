// SPDX-License-Identifier: Apache-2.0
#include "documents/renewal.h"

#include <algorithm>
#include <stdexcept>

#include "lockstep/core/error.h"

namespace lockstep::documents {
namespace {

void append(std::vector<std::string>& lines, const std::vector<std::string>& more, size_t from, size_t to) {
  for (size_t i = from; i < to; ++i) lines.push_back(more[i]);
}

/// Returns `printed` with the same numbers of lines before the first "..." and after the last one as `shown`.
std::vector<std::string> same_ends(const std::vector<std::string>& shown,
                                   const std::vector<std::string>& printed) {
  const auto skip = std::find_if(shown.begin(), shown.end(), is_skip);
  const auto last_skip = std::find_if(shown.rbegin(), shown.rend(), is_skip);
  const auto head = static_cast<size_t>(skip - shown.begin());
  const auto tail = static_cast<size_t>(last_skip - shown.rbegin());
  if (skip == shown.end() || head + tail >= printed.size()) return printed;
  std::vector<std::string> lines;
  append(lines, printed, 0, head);
  lines.emplace_back("...");
  append(lines, printed, printed.size() - tail, printed.size());
  return lines;
}

}  // namespace

std::vector<std::string> renewed_output(const std::vector<std::string>& shown,
                                        const std::vector<std::string>& printed) {
  // Whole numbers, such as an epoch number, identify a line, so they are compared first.
  Match match = compare(shown, printed, Exactness::fractions);
  if (!match.is_equal) match = compare(shown, printed, Exactness::numbers);
  if (!match.is_equal) return same_ends(shown, printed);
  std::vector<std::string> lines;
  for (size_t i = 0; i < shown.size(); ++i)
    lines.push_back(match.places[i] == Match::nowhere ? shown[i] : printed[match.places[i]]);
  return lines;
}

std::string renewed_text(const Document& document, const std::vector<Executed>& all) {
  std::vector<std::string> lines = document.lines;
  // From the last command to the first, so that the line numbers of the others stay valid.
  for (auto executed = all.rbegin(); executed != all.rend(); ++executed) {
    const Command& command = executed->command;
    const bool has_failed = executed->exit_code != 0 && command.shows_output && !command.is_told_failed;
    if (!executed->is_run || !executed->failure.empty() || has_failed)
      throw std::runtime_error(concat(document.path, ":", command.line + 1, ": ", problem_of(*executed)));
    const bool is_unseen =
        executed->exactness == Exactness::numbers;  // pages show the output of the full run
    if (!command.shows_output || is_unseen || problem_of(*executed).empty()) continue;
    const std::vector<std::string> fresh = renewed_output(command.output, executed->output);
    const auto begin = lines.begin() + static_cast<ptrdiff_t>(command.output_line);
    lines.insert(lines.erase(begin, begin + static_cast<ptrdiff_t>(command.output.size())), fresh.begin(),
                 fresh.end());
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace lockstep::documents
