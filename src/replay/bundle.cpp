// SPDX-License-Identifier: Apache-2.0
#include "lockstep/replay/bundle.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/text.h"
#include "lockstep/job/load_job.h"
#include "lockstep/json/json_field.h"
#include "lockstep/metrics/chain.h"
#include "lockstep/tensor/safetensors.h"
#include "lockstep/tokenizer/load_tokenizer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Field = JsonField<Json>;

constexpr size_t most_bytes = size_t{64} << 20;
constexpr int64_t bundle_format = 1;
constexpr const char* settings_file = "config.ini";
constexpr const char* values_file = "model.safetensors";
constexpr const char* batch_file = "batch.safetensors";
constexpr const char* tokenizer_file = "tokenizer.json";

std::string path_of(const std::string& folder, const std::string& file) { return concat(folder, "/", file); }

Json json_of(const RecordedRun& run, const RunTasks& tasks, const StepReplay& step,
             const std::string& program) {
  const MicroBatchInput& input = step.traced[0].inputs[0];
  const MicroBatchTrace& trace = step.traced[0].traces[0];
  const RecordedStart start = run.start_of(step.replayed.step);
  Json json = {{"format", bundle_format},
               {"run", run.folder},
               {"program", program},
               {"build", start.build},
               {"scope", start.scope},
               {"step", step.replayed.step},
               {"replica", input.batch.replica},
               {"micro_batch", input.index},
               {"epoch", input.epoch},
               {"first_sample", input.batch.first_sample},
               {"vocabulary_size", tasks.vocabulary_size()},
               {"inverse_count", nullptr},
               {"loss_scale", nullptr},
               {"loss_bits", RunChain::bits_text(trace.loss)},
               {"gradients", Json::object()}};
  if (input.inverse_count) json["inverse_count"] = *input.inverse_count;
  if (input.loss_scale) json["loss_scale"] = *input.loss_scale;
  for (const TracedParameter& parameter : trace.parameters)
    json["gradients"][parameter.name] = hash_text(elements_hash(parameter.gradient));
  return json;
}

/// Returns a tensor of a file by its name. Throws UserError that names the file.
Tensor tensor_in(const SafeTensors& file, const std::string& name, const std::string& path) {
  for (const NamedTensor& tensor : file.tensors)
    if (tensor.name == name) return tensor.tensor;
  throw UserError(concat(path, " has no tensor ", name));
}

/// Returns the other files of a bundle by name. Throws UserError that names one which is missing or has
/// another hash than in the bundle.
std::map<std::string, std::string> read_files(const Field& json, const std::string& folder) {
  for (const char* file : {settings_file, values_file, batch_file})
    require(json["files"].has(file), path_of(folder, bundle_file), " has no hash of ", file);
  std::map<std::string, std::string> files;
  for (const auto& [file, hash] : json["files"].members()) {
    hash.require_is(file.find('/') == std::string::npos, "a file of the bundle's own folder");
    const std::string path = path_of(folder, file);
    files[file] = read_named_file(path);
    require(hash.text() == hash_text(hash_of(files[file])), path, " is damaged: its hash is not that in ",
            bundle_file);
  }
  return files;
}

std::optional<double> number_of(const Field& field) {
  return field.is_null() ? std::nullopt : std::optional(field.number());
}

/// `batch`: the content of the file `path`.
MicroBatchInput input_of(const Field& json, const std::string& batch, const std::string& path) {
  const SafeTensors file = from_safetensors(batch, path);
  MicroBatchInput input{.batch = {.inputs = tensor_in(file, "inputs", path),
                                  .targets = tensor_in(file, "targets", path),
                                  .replica = json["replica"].whole<int64_t>(0),
                                  .first_sample = json["first_sample"].whole<int64_t>(0)},
                        .index = json["micro_batch"].whole<int64_t>(0),
                        .step = json["step"].whole<int64_t>(1),
                        .epoch = json["epoch"].whole<int64_t>(0),
                        .inverse_count = number_of(json["inverse_count"])};
  require(input.batch.inputs.shape().rank() > 0 && input.batch.targets.shape().rank() > 0 &&
              input.batch.inputs.shape()[0] == input.batch.targets.shape()[0],
          path, ": the inputs are ", input.batch.inputs.shape(), ", the targets ",
          input.batch.targets.shape(), "; they need a row for each sample");
  input.batch.samples = input.batch.inputs.shape()[0];
  if (const auto scale = number_of(json["loss_scale"])) input.loss_scale = static_cast<float>(*scale);
  return input;
}

/// Lists what differs from the bundle's record.
std::vector<std::string> differences_from(const Field& json, const MicroBatchTrace& trace) {
  std::vector<std::string> differing;
  if (json["loss_bits"].text() != RunChain::bits_text(trace.loss)) differing.emplace_back("the loss");
  for (const TracedParameter& parameter : trace.parameters) {
    const Field hash = json["gradients"][parameter.name];
    if (hash.is_null() || hash.text() != hash_text(elements_hash(parameter.gradient)))
      differing.push_back(parameter.name);
  }
  return differing;
}

Settings settings_in(const std::string& ini, const std::string& folder, const SettingLayer& overrides) {
  RecordedRun run{.folder = folder,
                  .settings = settings_of_earlier_run(job_keys(), ini, path_of(folder, settings_file))};
  run.settings.replace("log.dir", folder);
  run.settings.replace("snapshot.path", "none");
  return settings_of_replay(run, overrides);
}

}  // namespace

bool is_bundle(const std::string& folder) {
  std::error_code ignored;
  return fs::is_regular_file(path_of(folder, bundle_file), ignored);
}

void write_bundle(const std::string& folder, const RecordedRun& run, const RunTasks& tasks,
                  const StepReplay& step) {
  std::error_code problem;
  fs::create_directories(folder, problem);
  require(!problem, "--bundle ", folder, " cannot be created: ", problem.message());
  require(fs::is_empty(folder, problem) && !problem, "--bundle ", folder,
          " has files already: name a new folder");
  const Batch& batch = step.traced[0].inputs[0].batch;
  std::map<std::string, std::string> files = {
      {settings_file, to_ini(run.settings)},
      {values_file, to_safetensors({.tensors = step.before, .metadata = {}})},
      {batch_file,
       to_safetensors({.tensors = {{"inputs", batch.inputs}, {"targets", batch.targets}}, .metadata = {}})}};
  if (const Tokenizer* tokenizer = tasks.tokenizer()) files[tokenizer_file] = tokenizer->to_json();
  const std::string program = fs::path(run.start_of(step.replayed.step).program).filename().string();
  Json json = json_of(run, tasks, step, program);
  for (const auto& [file, content] : files) {
    write_file(path_of(folder, file), content);
    json["files"][file] = hash_text(hash_of(content));
  }
  // Written last: a folder with it is whole.
  write_file(path_of(folder, bundle_file), json.dump(2) + "\n");
}

BundleReplay replay_bundle(const std::string& folder, const SettingLayer& overrides, const World& world,
                           bool keeps_tensors) {
  const std::string path = path_of(folder, bundle_file);
  const Field json(read_named_file(path), path, most_bytes);
  require(json["format"].whole() == bundle_format, path, " has the format ", json["format"].shown(),
          "; this program reads format ", bundle_format);
  std::map<std::string, std::string> files = read_files(json, folder);
  const Job job = resolve(settings_in(files[settings_file], folder, overrides), world);
  BundleReplay bundle;
  if (files.contains(tokenizer_file))
    bundle.tokenizer = tokenizer_from_json(files[tokenizer_file], path_of(folder, tokenizer_file));
  const auto tasks = tasks_without_data(job, json["program"].text(), bundle.tokenizer,
                                        json["vocabulary_size"].whole<int64_t>(0, INT32_MAX));
  MicroBatchReplay model(*tasks);
  const std::string values = path_of(folder, values_file);
  model.load(from_safetensors(files[values_file], values).tensors, values);
  const MicroBatchInput input = input_of(json, files[batch_file], path_of(folder, batch_file));
  bundle.replica = trace_replica(model, {input}, keeps_tensors);
  bundle.origin = concat("step ", input.step, " of ", json["run"].text(), ", replica ", input.batch.replica,
                         ", micro-batch ", input.index);
  bundle.build = json["build"].text();
  bundle.scope = json["scope"].text();
  bundle.differences = differences_from(json, bundle.replica.traces[0]);
  return bundle;
}

}  // namespace lockstep
