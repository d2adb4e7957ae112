// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::documents {

/// What the words after a fenced block's language say about it.
enum class Tag {
  run,      ///< "run": its commands are executed, their output is compared
  shorter,  ///< "short: A -> B, ...": executed with these replacements, the output compared by shape
  not_run,  ///< "not run: reason"
  from,     ///< "from PATH": its lines stand in that file
  output,   ///< "output": what the last command of the executed block before it prints
  figure,   ///< "figure": a picture, or what a file or a message looks like
};

/// One thing that is wrong with a document.
struct Problem {
  std::string file;
  size_t line = 0;  ///< from 1
  std::string text;
};

/// A command of an executed block and what it prints. Lines are counted from 0 in the document.
struct Command {
  std::string text;
  size_t line = 0;
  std::vector<std::string> output;
  size_t output_line = 0;       ///< of the first line of its output, were there one
  bool shows_output = true;     ///< false in a block of sh
  bool is_told_failed = false;  ///< the next command looks at its exit code
};

struct Block {
  std::string language;
  Tag tag = Tag::not_run;
  std::string argument;  ///< what follows the tag: a reason, a path, replacements
  size_t line = 0;       ///< of the fence, from 0
  std::vector<std::string> lines;

  bool is_executed() const { return tag == Tag::run || tag == Tag::shorter; }
};

struct Document {
  std::string path;  ///< from the root of the sources
  std::vector<std::string> lines;
  std::vector<Block> blocks;
  std::vector<Problem> problems;  ///< fences without a tag, indented code, ...
};

using Replacements = std::vector<std::pair<std::string, std::string>>;

/// Reads Markdown. What breaks the rules of blocks is listed in `problems`.
Document parse_document(const std::string& path, const std::string& text);

/// The pages that are read: README.md, ARCHITECTURE.md, CONTRIBUTING.md, bench/results/README.md, and those
/// of docs/ in order.
std::vector<std::string> document_paths(const std::filesystem::path& root);

/// The commands of an executed block: those behind "$ " with their outputs, or a block of sh as one command.
/// The last one's output may be a block of its own. Throws std::runtime_error for a console block that begins
/// with something else.
std::vector<Command> commands_of(const Block& block, const Block* output = nullptr);

/// "A -> B, C -> D" as pairs. Throws std::runtime_error if it is not of this form.
Replacements parse_replacements(const std::string& text);

/// The text with every A as B. Sets used[i] for each pair whose A was there.
std::string replaced(std::string text, const Replacements& replacements, std::vector<bool>& used);

/// Why the block's lines do not stand in the file's text in this order, indentation and empty lines aside, a
/// line "..." (also as a comment) skipping some; empty if they do.
std::string missing_in(const Block& block, const std::string& file_text);

/// The text's lines, without blanks at their ends.
std::vector<std::string> lines_of(const std::string& text);

}  // namespace lockstep::documents
