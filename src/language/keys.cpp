// SPDX-License-Identifier: Apache-2.0
#include "lockstep/language/keys.h"

#include "lockstep/config/rows.h"

namespace lockstep {

KeyRows<TextOptions> text_rows() {
  using O = TextOptions;
  constexpr auto semantic = KeyClass::semantic;
  KeyRows<O> rows("data", "Data");
  // A run compares the hash of the contents, not this name: the same text may come from another place.
  rows.add_path(
          "dataset", &O::dataset,
          {{"shakespeare", NamedText::shakespeare},
           {"sample", NamedText::sample},
           {"random_tokens", NamedText::random_tokens}},
          KeyClass::collective,
          "training data: shakespeare, sample (built in) or random_tokens; a path or URL (https, s3) of a "
          "text or of examples (JSON lines); or a folder of texts (*.txt)")
      .first()
      .inherited()
      .also_called({"corpus", "data", "data_dir", "dataset_name"});
  rows.add_path("tokenizer", &O::tokenizer,
                {{"auto", NamedTokenizer::of_model}, {"char", NamedTokenizer::characters}},
                KeyClass::collective,
                "char: one token per character. Or the file of a tokenizer (tokenizer.json, vocab.json, "
                "*.tiktoken), or its folder. auto: the tokenizer of model.from, else char")
      .inherited()
      .also_called({"tokenizer_name"});
  rows.add("block_size", &O::block_size, semantic, at_least(1), "tokens",
           "length of a training sequence (context length)")
      .first()
      .also_called({"block", "context_length", "max_length", "max_seq_length", "seq_len", "seq_length",
                    "sequence_length"});
  rows.add("train_split", &O::train_split, semantic, {.low = 0, .high = 1, .low_open = true}, "share",
           "share of the data to train on; the rest is for validation; 1: no validation. Has no effect with "
           "data.validation")
      .also_called({"val_split", "validation_split"});
  // A run compares the hash of the contents, not this name.
  rows.add_path("validation", &O::validation,
                {{"shakespeare", NamedText::shakespeare}, {"sample", NamedText::sample}},
                KeyClass::collective,
                "validation data: shakespeare, sample, a path or URL, as for data.dataset, all of which then "
                "trains; empty: the rest of data.train_split")
      .inherited()
      .also_called({"eval_data", "eval_dataset", "val_data", "validation_data", "validation_file"});
  rows.add("columns", &O::columns, semantic,
           "examples only: the names of the columns, PROMPT:ANSWER, or that of one column of texts or "
           "conversations. Empty: prompt:answer, text, messages or instruction, as the lines have them")
      .also_called({"column", "dataset_text_field", "text_column"});
  rows.add(
      "chat_template", &O::chat_template,
      {{"auto", ChatFormat::of_tokenizer}, {"llama3", ChatFormat::llama3}, {"chatml", ChatFormat::chatml}},
      semantic, "conversations only: how they are written. auto: by the chat template of the tokenizer");
  rows.add("loss_on", &O::loss_on, {{"answer", LossOn::answer}, {"all", LossOn::all}}, semantic,
           "examples only: the tokens that count in the loss");
  rows.add("loss_mean", &O::loss_mean, {{"tokens", LossMean::tokens}, {"micro_batch", LossMean::micro_batch}},
           semantic,
           "examples only: the loss of a step. tokens: the mean over all its tokens that count, however "
           "replicas and micro-batches divide them; micro_batch: the mean of the means of micro-batches")
      .in_earlier_runs("micro_batch");
  rows.add("packing", &O::packing, semantic,
           "examples only: true packs several examples into a block, and each attends to those before it; "
           "false: one example per block");
  return rows;
}

std::string value_of(const TextOptions& text, const std::string& key) { return text_rows().value(text, key); }

}  // namespace lockstep
