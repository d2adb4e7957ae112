// SPDX-License-Identifier: Apache-2.0
#include "lockstep/language/language_data.h"

#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"
#include "lockstep/data/examples.h"
#include "lockstep/language/keys.h"
#include "lockstep/tokenizer/char_tokenizer.h"

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

/// Throws UserError if data.columns is set and no text has examples.
void require_examples(const TextOptions& text, const SharedTexts& shared) {
  const auto has_examples = [](const SharedText& one) { return one.image.marks().answers() > 0; };
  require(text.columns.empty() || has_examples(shared.dataset) ||
              (shared.validation && has_examples(*shared.validation)),
          "data.columns = ", text.columns,
          ": data.dataset has no examples; a file of them is JSON lines and ", "has a name *.jsonl");
}

/// Describes blocks of examples and logs warnings about them. The validation part may be null.
std::string describe_blocks(const TextOptions& text, const World& world, const Split<ExampleBlocks>& split) {
  const auto sum = [&](int64_t (ExampleBlocks::*count)() const) {
    return (*split.train.*count)() + (split.validation ? (*split.validation.*count)() : 0);
  };
  const int64_t cut = sum(&ExampleBlocks::cut_examples);
  const int64_t empty = sum(&ExampleBlocks::empty_examples);
  if (world.is_first() && cut > 0)
    log_warning(concat(counted(cut, "example"), " longer than data.block_size = ", text.block_size,
                       cut == 1 ? " is" : " are", " cut into pieces"));
  if (world.is_first() && empty > 0)
    log_warning(concat(counted(empty, "one-token example"), " ", empty == 1 ? "is" : "are",
                       " skipped: there is no context to predict the token from"));
  return concat(
      ", ", counted(sum(&ExampleBlocks::size), "block"), ", loss on ",
      text.loss_on == LossOn::all ? "all tokens" : "answers",
      text.packing ? "; packed: examples in a block attend to those before them (data.packing)" : "");
}

/// The samples of a text.
struct Samples {
  Split<Dataset> parts;
  std::string description;
  int64_t id_bytes = 0;
};

/// Returns the samples of a text, split by data.train_split. Throws UserError if a part has none.
Samples samples_of(const SharedText& shared, const TextOptions& text, const World& world, uint64_t seed,
                   const Tokenizer& tokenizer) {
  const TokenImage& image = shared.image;
  const bool is_char = dynamic_cast<const CharTokenizer*>(&tokenizer) != nullptr;
  const int64_t symbols = tokenizer.vocabulary_size();
  Samples samples;
  samples.description =
      concat(shared.description, ", ",
             is_char ? concat(symbols, " symbols") : concat(image.tokens().size(), " tokens of ", symbols));
  if (image.bytes().are_in_memory()) samples.id_bytes = image.bytes().size();
  if (image.marks().answers() > 0) {
    const auto split = split_examples(image.tokens(), image.marks(), text.train_split,
                                      {.block_size = text.block_size,
                                       .padding = tokenizer.end_of_text().value_or(0),
                                       .packs = text.packing,
                                       .counts_prompts = text.loss_on == LossOn::all});
    samples.description += describe_blocks(text, world, split);
    samples.parts = {split.train, split.validation};
  } else {
    const auto split = split_tokens(image.tokens(), text.block_size, text.train_split, seed);
    samples.parts = {split.train, split.validation};
  }
  return samples;
}

/// Returns the samples of data.validation, all of which validate.
Samples validation_samples(const SharedText& shared, const TextOptions& text, const World& world,
                           uint64_t seed, const Tokenizer& tokenizer) {
  const bool has_examples = shared.image.marks().answers() > 0;
  const int64_t tokens = shared.image.tokens().size();
  require(has_examples || tokens > text.block_size, "data.validation = ", value_of(text, "data.validation"),
          " has ", counted(tokens, "token"), ", and ", text.block_size + 1,
          " are needed; take a longer text, or lower data.block_size = ", text.block_size);
  try {
    return samples_of(shared, text, world, seed, tokenizer);
  } catch (const UserError&) {
    require(!has_examples, "data.validation = ", value_of(text, "data.validation"),
            " has no example with a target");
    throw;
  }
}

}  // namespace

LanguageData load_language_data(const TextOptions& text, const TextReader& reader, const World& world,
                                const std::shared_ptr<const Tokenizer>& model_tokenizer) {
  const bool has_validation = has_validation_text(text);
  if (is_named(text, NamedText::random_tokens)) {
    require(!has_validation, "data.validation = ", value_of(text, "data.validation"),
            " cannot be read: data.dataset = random_tokens has no tokenizer");
    return random_language_data(text, reader);
  }
  const SharedTexts shared = share_texts(text, reader, world, model_tokenizer);
  require_examples(text, shared);
  const Tokenizer& tokenizer = *shared.tokenizer;
  require_enough_ids(text, reader, tokenizer, dynamic_cast<const CharTokenizer*>(&tokenizer) != nullptr);
  TextOptions split = text;
  if (has_validation) split.train_split = 1.0;
  const Samples samples = samples_of(shared.dataset, split, world, reader.seed, tokenizer);
  LanguageData data{.training = samples.parts.train,
                    .validation = samples.parts.validation,
                    .tokenizer = shared.tokenizer,
                    .vocabulary_size = reader.vocab_size ? reader.vocab_size : tokenizer.vocabulary_size(),
                    .description = samples.description,
                    .text_hash = shared.dataset.hash,
                    .id_bytes = samples.id_bytes};
  if (!has_validation) return data;
  const Samples validation = validation_samples(*shared.validation, split, world, reader.seed, tokenizer);
  data.validation = validation.parts.train;
  data.validation_hash = shared.validation->hash;
  data.description += concat("\nvalidation: ", validation.description);
  data.id_bytes += validation.id_bytes;
  return data;
}

}  // namespace lockstep
