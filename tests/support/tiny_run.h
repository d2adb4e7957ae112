// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config_schema.h"
#include "data/corpus.h"
#include "data/examples.h"
#include "support/run_result.h"
#include "support/temporary_directory.h"
#include "tokenizer/char_tokenizer.h"
#include "train/language_model.h"

namespace lockstep {

/// Returns the configuration of a tiny GPT on the built-in text. It enables everything that could make the
/// result depend on the number of ranks.
inline Config tiny_config(const TemporaryDirectory& directory, int replicas) {
  Config config;
  config.data.dataset = "sample";
  config.data.block_size = 8;
  config.model.n_layer = 1;
  config.model.n_head = 2;
  config.model.n_embd = 16;
  config.model.dropout = 0.1;
  config.train.steps = 50;
  config.train.batch_size = 2;
  config.train.warmup_steps = 2;
  config.train.grad_clip = 0.5;
  config.train.eval_every = 0;
  config.dist.replicas = replicas;
  config.dist.bucket_mib = 0.004;
  config.log.dir = directory / "run";
  config.log.every_steps = 1000;
  // A second run with these settings must train. It must not find the first one finished.
  config.snapshot.path = "none";
  config.snapshot.resume = "never";
  return config;
}

/// Leaves the sizes of the model to model.from.
inline void unset_model(Config& config) {
  for (const ConfigKey& key : config_schema())
    if (key.name.starts_with("model.") && key.name != "model.from") config.unset.insert(key.name);
}

/// Returns the shared corpus, shortened to `lines` lines so that the evaluation at the end is fast.
inline LanguageData short_language_data(const Config& config, int64_t lines) {
  const std::string text = sample_text(lines);
  LanguageData data;
  data.tokenizer = std::make_shared<CharTokenizer>(text);
  const Split<TokenWindows> split =
      split_tokens(data.tokenizer->encode(text), config.data.block_size, config.data.train_split);
  data.training = split.train;
  data.validation = split.validation;
  data.vocabulary_size = data.tokenizer->vocabulary_size();
  data.text_hash = "short";
  return data;
}

/// Returns examples from `lines` lines of the shared corpus. Prompts have zero to four characters, and
/// answers have three to eight.
inline LanguageData short_example_data(const Config& config, int64_t lines) {
  const std::string text = sample_text(lines);
  std::vector<Example> examples;
  for (size_t i = 0; i < static_cast<size_t>(lines); ++i)
    examples.push_back({text.substr(32 * i + 2, i % 5), text.substr(32 * i + 2 + i % 5, 3 + i % 6),
                        static_cast<int64_t>(i + 1)});
  LanguageData data;
  data.tokenizer = std::make_shared<CharTokenizer>(text);
  const EncodedExamples encoded = encode_examples(*data.tokenizer, examples, "examples");
  const Split<ExampleBlocks> split =
      split_examples(encoded.ids, encoded.marks, config.data.train_split,
                     {.block_size = config.data.block_size, .padding = 0, .packs = config.data.packing});
  data.training = split.train;
  data.validation = split.validation;
  data.vocabulary_size = data.tokenizer->vocabulary_size();
  data.text_hash = "short examples";
  return data;
}

}  // namespace lockstep
