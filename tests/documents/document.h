// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::documents {

/// The kind of a fenced block. The words after the block's language name it.
enum class Tag {
  run,      ///< "run": the commands are executed and their output is compared
  shorter,  ///< "short: A -> B, ...": executed with these replacements; values of numbers are not compared
  not_run,  ///< "not run: reason": the commands are not executed
  from,     ///< "from PATH": that file contains the lines
  output,   ///< "output": the output of the last command in the executed block before it
  figure,   ///< "figure": a picture, or the look of a file or a message
};

/// An error in a document.
struct Problem {
  std::string file;
  size_t line = 0;  ///< line number, from 1
  std::string text;
};

/// A command of an executed block and its output. Line numbers are in the document and begin at 0.
struct Command {
  std::string text;
  size_t line = 0;
  std::vector<std::string> output;
  size_t output_line = 0;       ///< line at which its output begins, even if the output is empty
  bool shows_output = true;     ///< false in an sh block
  bool is_told_failed = false;  ///< the next command reads its exit code
};

struct Block {
  std::string language;
  Tag tag = Tag::not_run;
  std::string argument;  ///< text after the tag: a reason, a path or replacements
  size_t line = 0;       ///< line of the fence, from 0
  std::vector<std::string> lines;

  bool is_executed() const { return tag == Tag::run || tag == Tag::shorter; }
};

struct Document {
  std::string path;  ///< relative to the root of the sources
  std::vector<std::string> lines;
  std::vector<Block> blocks;
  std::vector<Problem> problems;  ///< for example fences without a tag, or indented code
};

using Replacements = std::vector<std::pair<std::string, std::string>>;

/// Parses Markdown. Lists violations of the rules for blocks in `problems`.
Document parse_document(const std::string& path, const std::string& text);

/// Returns the paths of the tested pages: README.md, ARCHITECTURE.md, CONTRIBUTING.md,
/// bench/results/README.md and the pages of docs/ in order.
std::vector<std::string> document_paths(const std::filesystem::path& root);

/// Returns the commands of an executed block. In a console block "$ " begins a command, and its output
/// follows. An sh block is one command. The last command's output may be in a separate block. Throws
/// std::runtime_error for a console block that does not begin with "$ ".
std::vector<Command> commands_of(const Block& block, const Block* output = nullptr);

/// Parses "A -> B, C -> D" into pairs. Throws std::runtime_error if the text has another form.
Replacements parse_replacements(const std::string& text);

/// Replaces every A in the text by B. Sets used[i] for each pair whose A was found.
std::string replaced(std::string text, const Replacements& replacements, std::vector<bool>& used);

/// Checks that the file's text contains the block's lines in this order. Ignores indentation and empty lines.
/// A line "..." (also as a comment) skips lines. Returns the reason if they are missing, or an empty text.
std::string missing_in(const Block& block, const std::string& file_text);

/// Splits the text into lines. Removes blanks at their ends.
std::vector<std::string> lines_of(const std::string& text);

}  // namespace lockstep::documents
