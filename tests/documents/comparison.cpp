// SPDX-License-Identifier: Apache-2.0
#include "documents/comparison.h"

#include <algorithm>
#include <regex>

#include "lockstep/core/text.h"

namespace lockstep::documents {
namespace {

struct Rule {
  std::regex pattern;
  const char* mark;
};

/// Returns the rules for values that vary from run to run or from machine to machine.
const std::vector<Rule>& varying() {
  static const std::vector<Rule> rules = {
      {std::regex("\\b\\d+(\\.\\d+)? (s|ms|us|µs|seconds?|minutes?|hours?)\\b"), "<time>"},
      {std::regex("\\b\\d+(\\.\\d+)?[kM]? (tokens|samples)/s"), "<rate>"},
      {std::regex("\"([a-z_]+_ms|time|mfu|[a-z]+_per_s)\":[-+.e0-9]+"), "\"$1\":<time>"},
      {std::regex("\\b\\d{4}-\\d\\d-\\d\\d([T ]\\d\\d:\\d\\d(:\\d\\d)?Z?)?"), "<date>"},
      {std::regex("\\bETA \\S+"), "ETA <time>"},
      {std::regex("\\b(pid|process) \\d+"), "$1 <number>"},
      {std::regex("\\bhost [-.\\w]+"), "host <host>"},
      {std::regex("^(ranks? [-, 0-9]+) on [-.\\w]+: .*"), "$1 on <host>: <processor>"},
      {std::regex("\\[CPU(\\d+) = [-.\\w]+:"), "[CPU$1 = <host>:"},
      {std::regex("\\b\\d+(\\.\\d+)? ([KMGT]iB|bytes) free"), "<space> free"},
      {std::regex("\\b\\d+ threads? each"), "<threads> each"},
      {std::regex("x86-64( avx512f| avx2)?( fma)?|aarch64( fma)?"), "<instructions>"},
      {std::regex("\\b\\d+(\\.\\d+)? [KMGT]iB planned"), "<memory> planned"},
      // These figures include the program's own memory or the kernels' workspaces, which grow with the vector
      // width.
      {std::regex("\\b(at (most|least)|address space:|which takes|total:|activations|backward|validation) "
                  "+\\d+(\\.\\d+)? [KMGT]iB"),
       "$1 <memory>"},
      {std::regex("that fits: \\d+ \\(here"), "that fits: <number> (here"},
      {std::regex("(what fits|change that fits): .*"), "$1: <change>"},
      {std::regex("at step \\d+ \\(\\w+\\)"), "at step <step>"},
      {std::regex("/tmp/[^\\s'\"),:]*"), "<path>"},
  };
  return rules;
}

/// Returns the rules for hashes, fractions and "(best so far)". A hash is a hexadecimal word of at least
/// eight digits, at least one of them decimal. A fraction is a number with a fraction or an exponent.
const std::vector<Rule>& fractions() {
  static const std::vector<Rule> rules = {
      {std::regex(" \\(best so far\\)"), ""},
      {std::regex("\\b(?=[a-f]*[0-9])[0-9a-f]{8,}\\b"), "<hash>"},
      {std::regex("-?\\b\\d+(\\.\\d+(e[-+]?\\d+)?|e[-+]\\d+)"), "<fraction>"},
  };
  return rules;
}

const Rule& any_number() {
  static const Rule rule = {std::regex("\\d+"), "<number>"};
  return rule;
}

void apply(const std::vector<Rule>& rules, std::string& line) {
  for (const Rule& rule : rules) line = std::regex_replace(line, rule.pattern, rule.mark);
}

/// Returns true for a training's timed progress lines and for its line about the processes' memory.
bool is_by_the_clock(const std::string& line) {
  static const std::regex progress(
      "step \\d+/\\d+  loss .*|about \\d+ \\w+ left|validating \\d+/\\d+ .*|memory: at most .*");
  return std::regex_match(line, progress);
}

bool is_of_a_rank(const std::string& line) { return line.starts_with("[CPU"); }

struct Line {
  size_t place = 0;
  std::string text;
};

struct Streams {
  std::vector<Line> in_order;
  std::vector<Line> of_ranks;
};

Streams streams_of(const std::vector<std::string>& lines, Exactness exactness) {
  Streams streams;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (is_by_the_clock(lines[i])) continue;
    const Line line{i, is_skip(lines[i]) ? "..." : normalised(lines[i], exactness)};
    (is_of_a_rank(line.text) ? streams.of_ranks : streams.in_order).push_back(line);
  }
  return streams;
}

/// Matches the shown lines in order. "..." works like "*" in a shell pattern. Returns false if they do not
/// match.
bool find_in_order(const std::vector<Line>& shown, const std::vector<Line>& printed, Match& match) {
  size_t here = 0;
  size_t there = 0;
  size_t skip = shown.size();
  size_t skip_end = 0;
  size_t furthest = 0;
  while (there < printed.size()) {
    if (here < shown.size() && shown[here].text == "...") {
      skip = here++;
      skip_end = there;
    } else if (here < shown.size() && shown[here].text == printed[there].text) {
      match.places[shown[here++].place] = printed[there++].place;
    } else if (skip < shown.size()) {
      here = skip + 1;
      there = ++skip_end;
    } else {
      break;
    }
    furthest = std::max(furthest, here);
  }
  while (here < shown.size() && shown[here].text == "...") ++here;
  if (here == shown.size() && there == printed.size()) return true;
  match.difference = furthest < shown.size() ? shown[furthest].place : match.places.size();
  return false;
}

/// Finds each shown line of a rank among the printed lines, in any order. Returns false if one is missing.
/// Also returns false if more were printed and no "..." is shown.
bool find_of_ranks(const Streams& shown, const Streams& printed, Match& match) {
  std::vector<Line> left = printed.of_ranks;
  for (const Line& line : shown.of_ranks) {
    const auto found = std::find_if(left.begin(), left.end(),
                                    [&](const Line& candidate) { return candidate.text == line.text; });
    if (found == left.end()) {
      match.difference = line.place;
      return false;
    }
    match.places[line.place] = found->place;
    left.erase(found);
  }
  const bool leaves_out = std::any_of(shown.in_order.begin(), shown.in_order.end(),
                                      [](const Line& line) { return line.text == "..."; });
  if (!left.empty() && !leaves_out) match.difference = match.places.size();
  return left.empty() || leaves_out;
}

}  // namespace

bool is_skip(const std::string& line) { return trimmed(line) == "..."; }

std::string normalised(const std::string& line, Exactness exactness) {
  std::string text = line;
  apply(varying(), text);
  if (exactness != Exactness::digits) apply(fractions(), text);
  if (exactness == Exactness::numbers) {
    text = std::regex_replace(text, std::regex("<(hash|fraction)>"), "<number>");
    text = std::regex_replace(text, any_number().pattern, any_number().mark);
  }
  return text;
}

Match compare(const std::vector<std::string>& shown, const std::vector<std::string>& printed,
              Exactness exactness) {
  Match match;
  match.places.assign(shown.size(), Match::nowhere);
  const Streams here = streams_of(shown, exactness);
  const Streams there = streams_of(printed, exactness);
  match.is_equal = find_in_order(here.in_order, there.in_order, match) && find_of_ranks(here, there, match);
  return match;
}

}  // namespace lockstep::documents
