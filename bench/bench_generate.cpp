// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <memory>

#include "lockstep/comm/world.h"
#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/models/gpt2/gpt.h"
#include "lockstep/models/llama/llama.h"
#include "lockstep/nn/generate.h"
#include "lockstep/program/command_line.h"
#include "measure.h"
#include "report.h"

using namespace lockstep;

namespace {

const std::vector<std::string> workloads = {"12x12x768", "4x4x128", "llama-12x12x768"};

struct Options {
  std::vector<std::string> workloads;
  std::vector<std::string> batches = {"1", "8"};
  int64_t prompt = 16, tokens = 64;
  int rounds = 7;
  int threads = available_cores();
  bool append = false;
};

/// Returns the model of a workload with random weights.
std::unique_ptr<LanguageModel> make_model(const std::string& workload) {
  if (workload == "12x12x768")
    return std::make_unique<Gpt>(
        Gpt::Options{.vocabulary = 50304, .block_size = 1024, .layers = 12, .heads = 12, .width = 768}, 1);
  if (workload == "4x4x128")
    return std::make_unique<Gpt>(
        Gpt::Options{.vocabulary = 65, .block_size = 256, .layers = 4, .heads = 4, .width = 128}, 1);
  require(workload == "llama-12x12x768", "--workload ", workload, ": it must be one of ", joined(workloads));
  return std::make_unique<Llama>(Llama::Options{.vocabulary = 50304,
                                                .block_size = 1024,
                                                .layers = 12,
                                                .heads = {12, 4},
                                                .head_size = 64,
                                                .width = 768,
                                                .hidden = 2048},
                                 1);
}

/// Returns the bytes of weights that one step reads. All models share the head's weight with the token table.
/// Excludes learned positions, in which a step only looks rows up.
int64_t weight_bytes(const LanguageModel& model) {
  int64_t bytes_read = 0;
  for (const auto& [name, tensor] : model.parameters())
    if (!name.ends_with("wpe.weight")) bytes_read += tensor.size() * bytes(tensor.dtype());
  return bytes_read;
}

/// Times the tokens after the first, in seconds per step of the whole batch. The first step is excluded
/// because it includes the prompts.
double seconds_per_step(TextModel& model, const Options& options, int64_t batch, int64_t vocabulary) {
  std::vector<Prompt> prompts(static_cast<size_t>(batch));
  int64_t drawn = 0;
  Clock::time_point first, last;
  for (int64_t i = 0; i < batch; ++i) {
    Prompt& prompt = prompts[static_cast<size_t>(i)];
    for (int64_t j = 0; j < options.prompt; ++j)
      prompt.ids.push_back(static_cast<int32_t>((7919 * (j + 1) + 104729 * i) % vocabulary));
    prompt.options = {.tokens = options.tokens, .temperature = 0.0};
    prompt.on_token = [&](int32_t /*id*/) {
      if (++drawn == batch) first = Clock::now();
      last = Clock::now();
      return true;
    };
  }
  generate(model, prompts, {.texts = batch, .tokens = batch * options.prompt});
  return std::chrono::duration<double>(last - first).count() / static_cast<double>(options.tokens - 1);
}

void bench(const std::string& workload, const Options& options, Report& report) {
  const std::unique_ptr<LanguageModel> model = make_model(workload);
  const auto text_model = make_text_model(*model);
  const int64_t weights = weight_bytes(*model);
  const auto read = make_read(weights, std::get<CpuStream>(current_stream()));
  for (const std::string& batch : options.batches) {
    std::vector<double> steps, reads;
    for (int round = -1; round < options.rounds; ++round) {
      const double step = seconds_per_step(*text_model, options, std::stoll(batch), model->vocabulary());
      const double reading = measure({read}, 0.05)[0].seconds;
      if (round < 0) continue;  // warm-up
      steps.push_back(step);
      reads.push_back(reading);
    }
    const Timing step = timing_of(steps), bound = timing_of(reads);
    report.add({workload, batch, concat(options.prompt, "+", options.tokens),
                fixed_text(step.seconds * 1e3, 3), fixed_text(step.spread_percent, 1),
                fixed_text(std::stod(batch) / step.seconds, 0),
                fixed_text(static_cast<double>(weights) / 1048576, 1),
                fixed_text(static_cast<double>(weights) / bound.seconds * 1e-9, 1),
                fixed_text(bound.seconds * 1e3, 3), fixed_text(100 * bound.seconds / step.seconds, 1)});
  }
}

void describe(CommandLine& line, Options& options) {
  line.add("--workload", options.workloads,
           concat("layers x heads x width (default all): ", joined(workloads)));
  line.add("--batch", options.batches, "texts per batch (default 1 and 8)");
  line.add("--prompt", options.prompt, "tokens of each prompt", {.least = 1});
  line.add("--tokens", options.tokens, "tokens to generate per text", {.least = 2});
  line.add("--rounds", options.rounds, "samples of each workload and batch", {.least = 1});
  line.add("--threads", options.threads, "threads", {.least = 1});
  line.add_flag("--append", options.append, "add the rows to bench/results/bench_generate.csv");
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Times a generated token against reading the weights once; the weights are random fp32");
  Options options;
  describe(line, options);
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  return run_alone([&] {
    set_threads(options.threads);
    if (options.workloads.empty()) options.workloads = workloads;
    for (const std::string& batch : options.batches)
      require(!batch.empty() && batch.find_first_not_of("0123456789") == std::string::npos &&
                  batch.size() < 6 && std::stoll(batch) > 0,
              "--batch ", batch, ": it must be a whole number from 1 up");
    Report report("bench_generate",
                  {{"workload", 16},
                   {"batch", 6},
                   {"tokens", 8},
                   {"ms", 9},
                   {"spread", 8},
                   {"tokens_per_s", 14},
                   {"weights_mib", 13},
                   {"read_gb_s", 11},
                   {"bound_ms", 10},
                   {"percent", 9}},
                  {.ranks = 1, .threads = options.threads});
    for (const std::string& workload : options.workloads) bench(workload, options, report);
    if (options.append) report.append();
    return 0;
  });
}
