// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/data/corpus.h"
#include "lockstep/data/examples.h"
#include "lockstep/job/load_job.h"
#include "lockstep/tokenizer/char_tokenizer.h"
#include "lockstep/train/language_task.h"
#include "lockstep/train/trainer.h"
#include "support/altered_task.h"
#include "support/run_result.h"
#include "support/temporary_directory.h"

namespace lockstep {

/// Returns the configuration of a tiny GPT on the built-in text. It enables everything that could make the
/// result depend on the number of ranks.
inline Job tiny_config(const TemporaryDirectory& directory, int replicas) {
  Job job;
  job.text.dataset = NamedText::sample;
  job.text.block_size = 8;
  job.model.n_layer = 1;
  job.model.n_head = 2;
  job.model.n_embd = 16;
  job.model.dropout = 0.1;
  job.length.steps = 50;
  job.batches.batch_size = 2;
  job.schedule.warmup_steps = 2;
  job.optimizer.grad_clip = 0.5;
  job.validation.eval_every = 0;
  job.dist.replicas = replicas;
  job.dist.bucket_mib = 0.004;
  job.log.dir = directory / "run";
  job.log.every_steps = 1000;
  // A second run with these settings must train. It must not find the first one finished.
  job.snapshots.path = NamedPlace::none;
  job.snapshots.resume = Resume::never;
  return job;
}

/// Returns whether the data are a file of examples.
inline bool has_examples(const Job& job) {
  const auto* path = std::get_if<std::string>(&job.text.dataset);
  return path != nullptr && path->ends_with(".jsonl");
}

/// Opens the model of model.from and takes its sizes. `set`: what the user has set, besides that key.
inline std::unique_ptr<SourceModel> take_source(Job& job, const World& world, const SettingLayer& set = {}) {
  std::unique_ptr<SourceModel> source = open_source(job, world);
  Settings given(job_keys());
  given.add(set);
  job = with_sizes_of(source.get(), job, given);
  return source;
}

/// Returns the shared corpus, shortened to `lines` lines so that the evaluation at the end is fast.
inline LanguageData short_language_data(const Job& job, int64_t lines) {
  const std::string text = sample_text(lines);
  LanguageData data;
  data.tokenizer = std::make_shared<CharTokenizer>(text);
  const Split<TokenWindows> split =
      split_tokens(data.tokenizer->encode(text), job.text.block_size, job.text.train_split);
  data.training = split.train;
  data.validation = split.validation;
  data.vocabulary_size = data.tokenizer->vocabulary_size();
  data.text_hash = "short";
  return data;
}

/// Returns examples from `lines` lines of the shared corpus. Prompts have zero to four characters, and
/// answers have three to eight.
inline LanguageData short_example_data(const Job& job, int64_t lines) {
  const std::string text = sample_text(lines);
  std::vector<Example> examples;
  for (size_t i = 0; i < static_cast<size_t>(lines); ++i)
    examples.push_back({text.substr(32 * i + 2, i % 5), text.substr(32 * i + 2 + i % 5, 3 + i % 6),
                        static_cast<int64_t>(i + 1)});
  LanguageData data;
  data.tokenizer = std::make_shared<CharTokenizer>(text);
  const EncodedExamples encoded = encode_examples(*data.tokenizer, examples, "examples");
  const Split<ExampleBlocks> split =
      split_examples(encoded.ids, encoded.marks, job.text.train_split,
                     {.block_size = job.text.block_size, .padding = 0, .packs = job.text.packing});
  data.training = split.train;
  data.validation = split.validation;
  data.vocabulary_size = data.tokenizer->vocabulary_size();
  data.text_hash = "short examples";
  return data;
}

}  // namespace lockstep
