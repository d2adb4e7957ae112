// SPDX-License-Identifier: Apache-2.0
#include "language/language_data.h"

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "data/examples.h"
#include "tokenizer/char_tokenizer.h"

namespace lockstep {
namespace {

LanguageData random_language_data(const TextOptions& text, const TextReader& reader) {
  require(reader.vocab_size > 0,
          "model.vocab_size must be set: data.dataset = random_tokens has no text to derive it from");
  const RandomTokens::Options options{.samples = int64_t{1} << 24,
                                      .vocabulary_size = reader.vocab_size,
                                      .block_size = text.block_size,
                                      .seed = reader.seed};
  RandomTokens::Options validation = options;
  validation.samples = 64;
  ++validation.seed;
  return {.training = std::make_shared<RandomTokens>(options),
          .validation = std::make_shared<RandomTokens>(validation),
          .tokenizer = {},
          .vocabulary_size = reader.vocab_size,
          .description = concat("random tokens, ", reader.vocab_size, " symbols"),
          .text_hash = concat("random tokens below ", reader.vocab_size)};
}

/// Splits examples into blocks for training and validation. Adds to the description, and logs warnings.
void add_blocks(const TextOptions& text, const World& world, const TokenImage& image, LanguageData& data) {
  const auto split = split_examples(image.tokens(), image.marks(), text.train_split,
                                    {.block_size = text.block_size,
                                     .padding = data.tokenizer->end_of_text().value_or(0),
                                     .packs = text.packing,
                                     .counts_prompts = text.loss_on == LossOn::all});
  data.training = split.train;
  data.validation = split.validation;
  // Without validation there is no second part.
  const auto sum = [&](int64_t (ExampleBlocks::*count)() const) {
    return (*split.train.*count)() + (split.validation ? (*split.validation.*count)() : 0);
  };
  data.description +=
      concat(", ", counted(sum(&ExampleBlocks::size), "block"), ", loss on ",
             text.loss_on == LossOn::all ? "all tokens" : "answers",
             text.packing ? "; packed: examples in a block attend to those before them (data.packing)" : "");
  const int64_t cut = sum(&ExampleBlocks::cut_examples);
  const int64_t empty = sum(&ExampleBlocks::empty_examples);
  if (world.is_first() && cut > 0)
    log_warning(concat(counted(cut, "example"), " longer than data.block_size = ", text.block_size,
                       cut == 1 ? " is" : " are", " cut into pieces"));
  if (world.is_first() && empty > 0)
    log_warning(concat(counted(empty, "one-token example"), " ", empty == 1 ? "is" : "are",
                       " skipped: there is no context to predict the token from"));
}

/// Throws UserError if a tokenizer has an id that the model of this size lacks.
void require_enough_ids(const TextOptions& text, const TextReader& reader, const Tokenizer& tokenizer,
                        bool is_char) {
  const int64_t most = reader.vocab_size, needed = tokenizer.vocabulary_size();
  if (most == 0 || most >= needed) return;
  const char* const unit = is_char ? "character" : "token";
  const auto lacking = static_cast<int32_t>(most);
  require(reader.model.empty(), "data.tokenizer = ", tokenizer_name(text), " has the ", unit, " \"",
          shortened(tokenizer.decode({&lacking, 1})), "\", but the model of model.from = ", reader.model,
          " has only the ids below ", most);
  throw UserError(concat("model.vocab_size = ", most, ", but the ", is_char ? "text" : "tokenizer", " has ",
                         needed, is_char ? " different characters" : " tokens",
                         "; 0 means as many as needed"));
}

}  // namespace

LanguageData load_language_data(const TextOptions& text, const TextReader& reader, const World& world,
                                const std::shared_ptr<const Tokenizer>& model_tokenizer) {
  if (is_named(text, NamedText::random_tokens)) return random_language_data(text, reader);
  const SharedText shared = share_text(text, reader, world, model_tokenizer);
  const TokenImage& image = shared.image;
  LanguageData data;
  data.tokenizer = shared.tokenizer;
  data.description = shared.description;
  data.text_hash = shared.hash;
  const bool is_char = dynamic_cast<const CharTokenizer*>(data.tokenizer.get()) != nullptr;
  const int64_t needed = data.tokenizer->vocabulary_size();
  require_enough_ids(text, reader, *data.tokenizer, is_char);
  data.vocabulary_size = reader.vocab_size ? reader.vocab_size : needed;
  data.description +=
      is_char ? concat(", ", needed, " symbols") : concat(", ", image.tokens().size(), " tokens of ", needed);
  if (image.bytes().are_in_memory()) data.id_bytes = image.bytes().size();
  if (image.marks().examples() > 0) {
    add_blocks(text, world, image, data);
    return data;
  }
  const auto split = split_tokens(image.tokens(), text.block_size, text.train_split, reader.seed);
  data.training = split.train;
  data.validation = split.validation;
  return data;
}

}  // namespace lockstep
