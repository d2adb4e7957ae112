// SPDX-License-Identifier: Apache-2.0
#include "documents/document.h"

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::documents {
namespace {

namespace fs = std::filesystem;

constexpr const char* known_tags =
    "'run' (console or sh: executed), 'short: A -> B' (executed with these replacements), "
    "'not run: reason', 'from PATH' (the lines stand in that file), 'output' (of the last command above), "
    "'figure'";

const std::string fence = "```";

size_t indentation(const std::string& line) { return std::min(line.find_first_not_of(' '), line.size()); }

bool is_list_item(const std::string& line) {
  static const std::regex item("\\s*([-*+]|[0-9]+[.)])\\s.*");
  return std::regex_match(line, item);
}

/// Sets `rest` to the text after `prefix`, which may be empty. Returns false if the text has another prefix.
bool takes(const std::string& text, const std::string& prefix, std::string& rest) {
  if (!text.starts_with(prefix)) return false;
  rest = trimmed(text.substr(prefix.size()));
  return true;
}

/// Sets language, tag and argument from the words after the fence. Returns their error, or an empty text.
std::string read_info(const std::string& info, Block& block) {
  const size_t blank = std::min(info.find(' '), info.size());
  block.language = info.substr(0, blank);
  const std::string tag = trimmed(info.substr(blank));
  const bool is_shell = block.language == "console" || block.language == "sh";
  if (block.language.empty()) return "a block without language and tag";
  if (tag.empty()) return "a block without a tag";
  if (tag == "run" || takes(tag, "short:", block.argument)) {
    block.tag = tag == "run" ? Tag::run : Tag::shorter;
    return is_shell ? "" : "only blocks of console or sh are executed, not of " + block.language;
  }
  if (tag == "figure" || tag == "output") {
    block.tag = tag == "figure" ? Tag::figure : Tag::output;
    return is_shell ? "commands are no " + tag : "";
  }
  if (takes(tag, "not run:", block.argument)) {
    block.tag = Tag::not_run;
    return block.argument.empty() ? "'not run' without a reason" : "";
  }
  if (takes(tag, "from ", block.argument)) {
    block.tag = Tag::from;
    return "";
  }
  return "a block with the unknown tag '" + tag + "'";
}

/// A detector of Markdown's indented code: lines indented by four columns after an empty line, outside of
/// lists.
class IndentedCode {
 public:
  bool operator()(const std::string& line) {
    const bool is_empty = trimmed(line).empty();
    const bool is_indented = line.starts_with("    ") || line.starts_with("\t");
    const bool is_code = !is_empty && is_indented && !in_list_ && (after_empty_ || in_code_);
    if (!is_empty) {
      if (is_list_item(line)) in_list_ = !is_code;
      if (indentation(line) == 0 && after_empty_ && !is_list_item(line)) in_list_ = false;
      in_code_ = is_code;
    }
    after_empty_ = is_empty;
    return is_code;
  }

 private:
  bool in_list_ = false;
  bool in_code_ = false;
  bool after_empty_ = true;
};

bool leaves_lines_out(const std::string& line) {
  static const std::regex skip("\\s*(//|#|;)?\\s*\\.\\.\\.\\s*");
  return std::regex_match(line, skip);
}

/// Returns the lines that are not empty, without indentation. Omits the marks of blanks in exercise
/// solutions, because pages show the code without them.
std::vector<std::string> bare_lines(const std::vector<std::string>& lines) {
  std::vector<std::string> bare;
  for (const std::string& line : lines)
    if (std::string text = trimmed(line); !text.empty() && !text.starts_with("// blank<"))
      bare.push_back(std::move(text));
  return bare;
}

bool is_continued(const std::string& line) { return line.ends_with("\\"); }

}  // namespace

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    lines.push_back(line);
  }
  return lines;
}

Document parse_document(const std::string& path, const std::string& text) {
  Document document{.path = path, .lines = lines_of(text), .blocks = {}, .problems = {}};
  const auto complain = [&](size_t line, const std::string& what) {
    document.problems.push_back({path, line + 1, what});
  };
  IndentedCode is_indented_code;
  bool was_code = false;
  for (size_t at = 0; at < document.lines.size(); ++at) {
    const std::string& line = document.lines[at];
    const size_t indent = indentation(line);
    if (line.compare(indent, fence.size(), fence) != 0) {
      const bool is_code = is_indented_code(line);
      if (is_code && !was_code) complain(at, "an indented block: write a fenced one with a tag");
      was_code = is_code;
      continue;
    }
    Block block;
    block.line = at;
    const std::string problem = read_info(trimmed(line.substr(indent + fence.size())), block);
    if (!problem.empty()) complain(at, concat(problem, "; the tags are ", known_tags));
    for (++at; at < document.lines.size() && trimmed(document.lines[at]) != fence; ++at) {
      const std::string& inside = document.lines[at];
      block.lines.push_back(inside.substr(std::min(indent, indentation(inside))));
    }
    if (at == document.lines.size()) complain(block.line, "a block without an end");
    const bool has_command = !document.blocks.empty() && document.blocks.back().is_executed() &&
                             document.blocks.back().language == "console";
    if (block.tag == Tag::output && !has_command)
      complain(block.line, "there is no command above whose output it is");
    if (problem.empty()) document.blocks.push_back(std::move(block));
    is_indented_code("");
  }
  return document;
}

std::vector<std::string> document_paths(const fs::path& root) {
  std::vector<std::string> pages;
  for (const auto& entry : fs::recursive_directory_iterator(root / "docs"))
    if (entry.is_regular_file() && entry.path().extension() == ".md")
      pages.push_back(entry.path().lexically_relative(root).generic_string());
  std::sort(pages.begin(), pages.end());
  std::vector<std::string> paths = {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md",
                                    "bench/results/README.md"};
  paths.insert(paths.end(), pages.begin(), pages.end());
  return paths;
}

std::vector<Command> commands_of(const Block& block, const Block* output) {
  const size_t first = block.line + 1;
  if (block.language == "sh") {
    std::string text;
    for (const std::string& line : block.lines) text += line + "\n";
    return {{.text = text, .line = first, .output = {}, .output_line = first, .shows_output = false}};
  }
  std::vector<Command> commands;
  for (size_t at = 0; at < block.lines.size(); ++at) {
    const std::string& line = block.lines[at];
    if (!line.starts_with("$ ")) {
      if (commands.empty()) throw std::runtime_error("a console block begins with a command, '$ ...'");
      commands.back().output.push_back(line);
      continue;
    }
    Command command;
    command.line = first + at;
    command.text = line.substr(2);
    while (at + 1 < block.lines.size() &&
           (is_continued(command.text) || block.lines[at + 1].starts_with("> "))) {
      const std::string& next = block.lines[++at];
      command.text += "\n" + (next.starts_with("> ") ? next.substr(2) : next);
    }
    command.output_line = first + at + 1;
    if (!commands.empty()) commands.back().is_told_failed = command.text.find("$?") != std::string::npos;
    commands.push_back(command);
  }
  // Empty lines before the next command only separate commands.
  for (Command& command : commands)
    while (!command.output.empty() && command.output.back().empty()) command.output.pop_back();
  if (output && !commands.empty()) {
    if (!commands.back().output.empty()) throw std::runtime_error("the last command has two outputs");
    commands.back().output = output->lines;
    commands.back().output_line = output->line + 1;
  }
  return commands;
}

Replacements parse_replacements(const std::string& text) {
  Replacements replacements;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(", ", from), text.size());
    const std::string pair = text.substr(from, to - from);
    const size_t arrow = pair.find("->");
    const std::string old = trimmed(pair.substr(0, std::min(arrow, pair.size())));
    if (arrow == std::string::npos || old.empty())
      throw std::runtime_error("'" + pair + "' is not of the form A -> B");
    replacements.emplace_back(old, trimmed(pair.substr(arrow + 2)));
    from = to + 2;
  }
  return replacements;
}

std::string replaced(std::string text, const Replacements& replacements, std::vector<bool>& used) {
  used.resize(replacements.size());
  for (size_t i = 0; i < replacements.size(); ++i) {
    const auto& [old, fresh] = replacements[i];
    for (size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + fresh.size())) {
      text.replace(at, old.size(), fresh);
      used[i] = true;
    }
  }
  return text;
}

std::string missing_in(const Block& block, const std::string& file_text) {
  const std::vector<std::string> there = bare_lines(lines_of(file_text));
  const std::vector<std::string> wanted = bare_lines(block.lines);
  auto from = there.begin();
  for (auto begin = wanted.begin(); begin != wanted.end();) {
    const auto end = std::find_if(begin, wanted.end(), leaves_lines_out);
    const auto found = std::search(from, there.end(), begin, end);
    if (begin != end && found == there.end()) {
      // A line that the file does not contain at all is the most useful to report.
      const auto odd = std::find_if(begin, end, [&](const std::string& line) {
        return std::find(there.begin(), there.end(), line) == there.end();
      });
      return odd == end ? "these lines are not there in this order: '" + *begin + "' ..."
                        : "there is no line '" + *odd + "'";
    }
    from = begin == end ? from : found + (end - begin);
    begin = end == wanted.end() ? end : end + 1;
  }
  return "";
}

}  // namespace lockstep::documents
