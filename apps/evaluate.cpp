// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/config/rows.h"
#include "lockstep/core/dtype.h"
#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/log.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/text.h"
#include "lockstep/huggingface/source_model.h"
#include "lockstep/language/keys.h"
#include "lockstep/language/shared_text.h"
#include "lockstep/program/command_line.h"
#include "lockstep/program/program.h"
#include "lockstep/writing/score_text.h"

using namespace lockstep;

namespace {

struct Options {
  std::string model;
  std::vector<std::string> files;
  bool tokens = false;
  bool json = false;
  ScoreOptions score;
  std::string columns, chat_template = "auto";
  std::string dtype = "fp32";
  std::string device = "cpu";
  int threads = 0;
};

void describe(CommandLine& line, Options& options) {
  line.add("MODEL,--model", options.model,
           "the folder of a run or of snapshots (its best one, else its newest), a snapshot, or a Hugging "
           "Face folder (a path, s3:// or https://)",
           {.is_required = true, .is_path = true});
  line.add("FILE", options.files,
           "texts or examples (JSON lines): paths, folders of *.txt, addresses, or sample or shakespeare",
           {.is_required = true, .is_path = true, .takes_several = true});
  line.add_flag("--json", options.json, "print a line of JSON for each file, with all digits");
  line.add_flag(
      "--tokens", options.tokens,
      "print the log probability of each token that counts, as lines of JSON, and then that of the file");
  line.add("--context,--max-length,--max_length", options.score.context,
           "the tokens of a window; 0: as many as the model can read", {.least = 0});
  line.add("--batch-tokens,--batch_tokens", options.score.tokens_at_once,
           "tokens of the windows to score at once; no result depends on it on a CPU", {.least = 1});
  line.add("--columns", options.columns,
           "the columns of examples, as data.columns: PROMPT:ANSWER, or one of texts or conversations");
  line.add("--chat-template,--chat_template", options.chat_template,
           "how conversations are written, as data.chat_template", {.choices = {"auto", "llama3", "chatml"}});
  line.add("--dtype", options.dtype, "the precision to compute in", {.choices = {"fp32", "bf16", "fp16"}});
  line.add("--device", options.device, "where to compute", {.choices = {"cpu", "cuda"}});
  line.add("--threads", options.threads, "the number of threads; 0: this rank's share of the cores",
           {.least = 0});
}

/// The model, its tokenizer and the ranks.
struct Evaluation {
  const Options& options;
  const World& world;
  std::shared_ptr<const Tokenizer> tokenizer;  ///< on rank 0
  std::unique_ptr<LanguageModel> model;
  int threads = 1;

  std::string line_of(const std::string& file, const TextScore& score) const {
    if (options.json || options.tokens) return to_json_line(file, score) + "\n";
    return concat(file, ": loss ", fixed_text(score.loss(), 6), ", perplexity ", score.perplexity(), ", ",
                  score.bytes > 0 ? concat(fixed_text(score.bits_per_byte(), 6), " bits per byte, ") : "",
                  counted(score.tokens, "token"), ", ", counted(score.bytes, "byte"), "\n");
  }
  void evaluate(const std::string& file) const {
    const TextOptions of_file =
        text_rows().of({{"data.dataset", file, "FILE"},
                        {"data.columns", options.columns, "--columns"},
                        {"data.chat_template", options.chat_template, "--chat-template"}});
    require(!is_named(of_file, NamedText::random_tokens), "FILE = ", file, " is not a text; a file is ./",
            file);
    const SharedTexts shared =
        share_texts(of_file, {.model = options.model, .threads = threads}, world, tokenizer);
    EncodedText text{.name = concat("FILE = ", file), .tokens = shared.dataset.image.tokens()};
    if (shared.dataset.image.marks().answers() > 0) text.examples = shared.dataset.image.marks();
    std::string lines;
    const auto print = [&](const ScoredToken& token) {
      lines += to_json_line(file, token, *shared.tokenizer) + "\n";
      if (lines.size() < size_t{1} << 16) return;
      write_output(lines);
      lines.clear();
    };
    const bool prints_tokens = options.tokens && world.is_first();
    const TextScore score = score_text(world, *model, *shared.tokenizer, text, options.score,
                                       prints_tokens ? print : std::function<void(const ScoredToken&)>());
    lines += line_of(file, score);
    if (world.is_first()) write_output(lines);
  }
};

int evaluate(const Options& options) {
  set_wording({{"dataset", "FILE"},
               {"columns", "--columns"},
               {"chat_template", "--chat-template"},
               {"device", "--device"},
               {out_of_memory, "lower --batch-tokens or --context"}});
  require(options.score.context != 1,
          "--context 1: the first token of a window does not count; set at least 2");
  const World world = World::from_environment();
  if (world.size() > 1) set_log_rank(world.rank(), !world.is_first());
  const NoTimeout no_timeout(world.communicator());
  const int threads = options.threads > 0 ? options.threads : world.share_of_cores();
  set_threads(threads);
  if (options.device == "cuda") {
    require(count_gpus() > 0, "--device cuda: ", why_no_gpu(), "; or use --device cpu");
    set_current_stream(make_gpu_stream(world.gpu()));
  }
  const SourceModel source(options.model, world);
  const int64_t positions = source.description().options.n_positions;
  require(options.score.context <= positions, "--context ", options.score.context, ": the model of ",
          options.model, " reads at most ", positions, " tokens");
  Evaluation evaluation{.options = options, .world = world, .tokenizer = {}, .model = {}, .threads = threads};
  on_first_rank(world, [&] {
    evaluation.tokenizer = tokenizer_of(source);
    require(evaluation.tokenizer != nullptr, options.model, " has no tokenizer to read ",
            options.files.front(),
            " with: it is neither a snapshot of a model that was trained on text, nor a folder with a "
            "tokenizer.json");
  });
  evaluation.model = load_model(source, world, precision_called(options.dtype));
  for (const std::string& file : options.files) evaluation.evaluate(file);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Measures how well a model predicts texts: loss, perplexity and bits per byte");
  Options options;
  describe(line, options);
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  return run_program([&] { return evaluate(options); });
}
