// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/added_tokens.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

unsigned char first_byte(const std::string& text) { return static_cast<unsigned char>(text.front()); }

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  longest_first_.resize(tokens_.size());
  std::iota(longest_first_.begin(), longest_first_.end(), size_t{0});
  for (const AddedToken& token : tokens_) {
    expect(!token.content.empty(), "an added token is empty");
    longest_ = std::max(longest_, token.content.size());
    has_normalized_ = has_normalized_ || token.is_normalized;
    ++begin_of_byte_[first_byte(token.content) + 1u];
  }
  std::partial_sum(begin_of_byte_.begin(), begin_of_byte_.end(), begin_of_byte_.begin());
  std::ranges::stable_sort(longest_first_, {}, [this](size_t i) {
    return std::pair(first_byte(tokens_[i].content), -std::ssize(tokens_[i].content));
  });
}

const AddedToken* AddedTokens::longest_at(std::string_view text, size_t place, bool normalized) const {
  const auto byte = static_cast<unsigned char>(text[place]);
  for (uint32_t i = begin_of_byte_[byte]; i < begin_of_byte_[byte + 1u]; ++i) {
    const AddedToken& token = tokens_[longest_first_[i]];
    if (token.is_normalized == normalized && text.substr(place).starts_with(token.content)) return &token;
  }
  return nullptr;
}

std::vector<AddedTokens::Match> AddedTokens::find(std::string_view text, bool normalized) const {
  std::vector<Match> matches;
  if (tokens_.empty() || (normalized && !has_normalized_)) return matches;
  for (size_t place = 0; place < text.size();) {
    const auto byte = static_cast<unsigned char>(text[place]);
    const bool may_begin = begin_of_byte_[byte] != begin_of_byte_[byte + 1u];
    const AddedToken* const token = may_begin ? longest_at(text, place, normalized) : nullptr;
    if (token) matches.push_back({place, place + token->content.size(), token});
    place += token ? token->content.size() : 1;
  }
  return matches;
}

const AddedToken* AddedTokens::named(std::string_view content) const {
  const auto found = std::ranges::find(tokens_, content, &AddedToken::content);
  return found == tokens_.end() ? nullptr : &*found;
}

bool AddedTokens::straddles(std::string_view text, size_t place, bool normalized) const {
  for (size_t begin = place > longest_ ? place - longest_ : 0; begin < place; ++begin) {
    const auto byte = static_cast<unsigned char>(text[begin]);
    for (uint32_t i = begin_of_byte_[byte]; i < begin_of_byte_[byte + 1u]; ++i) {
      const AddedToken& token = tokens_[longest_first_[i]];
      if (token.is_normalized != normalized) continue;
      const std::string_view content = token.content, rest = text.substr(begin);
      // The rest of the text may be the beginning of the token, which then ends in another piece of the text.
      if (begin + content.size() > place && rest.starts_with(content.substr(0, rest.size()))) return true;
    }
  }
  return false;
}

}  // namespace lockstep
