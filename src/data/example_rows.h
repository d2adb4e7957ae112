// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A message of a conversation.
struct ChatMessage {
  enum class Role { system, user, assistant };

  Role role = Role::user;
  std::string content;
};

/// The name of a role in files and templates.
const char* name_of(ChatMessage::Role role);

/// One line of a JSONL file that a model learns: the answer to a prompt, a text (no prompt), or the
/// assistant's messages of a conversation (neither).
struct Example {
  enum class Kind { text, instruction, conversation };

  std::string prompt;
  std::string answer;
  int64_t line = 0;  ///< number of the line, from 1
  std::vector<ChatMessage> messages = {};
  Kind kind = Kind::text;
};

/// The columns of data.columns. Without names, the keys of a line say what it is.
struct Columns {
  std::string prompt;
  std::string answer;  ///< alone: a column of texts or of conversations

  bool are_named() const { return !answer.empty(); }
  /// "question:answer" or "content"
  std::string text() const { return prompt.empty() ? answer : prompt + ":" + answer; }
};

/// Reads the value of data.columns, which is not empty. Throws UserError naming the key.
Columns columns_of(const std::string& value);

/// Reads lines of a JSONL file. Each line is an object with the named columns, else with keys that say what
/// it is: `docs/fine_tuning.md` lists them. Blank lines and other keys are ignored. Throws UserError that
/// names `source` and the line. The first is `first_line`.
std::vector<Example> read_examples(std::string_view lines, const std::string& source,
                                   const Columns& columns = {}, int64_t first_line = 1);

}  // namespace lockstep
