// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "lockstep/data/example_rows.h"
#include "lockstep/data/examples.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

/// How a family of models writes a conversation. The templates of a family differ in what they add.
struct ChatTemplate {
  enum class Form { llama3, chatml };

  Form form = Form::chatml;
  std::string system = {};     ///< a system message for conversations that do not begin with one
  bool adds_dates = false;     ///< Llama 3.1: dates begin the system message
  bool adds_thoughts = false;  ///< Qwen 3: an empty thought begins the last answer

  /// "the template llama3", with what it adds
  std::string text() const;
};

/// Returns the template that a text in Jinja is, or nothing if it is not known. Does not execute it: a known
/// template has the tokens of its family and nothing that changes contents in another way.
std::optional<ChatTemplate> chat_template_of(const std::string& jinja);

/// Throws UserError naming the first special token of a template that a tokenizer lacks.
void require_tokens_of(const ChatTemplate& chat, const Tokenizer& tokenizer);

/// Appends a conversation and its marks. Special tokens that are written out in a message stay text. Only the
/// assistant's messages, with the token that ends each, are answers. Throws UserError that names `source`.
void encode_conversation(const Tokenizer& tokenizer, const ChatTemplate& chat, const Example& example,
                         const std::string& source, EncodedExamples& all);

}  // namespace lockstep
