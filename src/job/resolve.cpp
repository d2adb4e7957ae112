// SPDX-License-Identifier: Apache-2.0
#include "lockstep/job/resolve.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/log.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/core/version.h"
#include "lockstep/data/loader.h"
#include "lockstep/job/load_job.h"
#include "lockstep/kernels/processor.h"
#include "lockstep/models/family.h"

namespace lockstep {
namespace {

/// Returns the family and sizes that the last preset in these sources stands for. Throws UserError if they
/// set another family.
SettingLayer sizes_of_preset(const std::vector<SettingLayer>& layers) {
  std::string chosen, family;
  for (const SettingLayer& layer : layers)
    for (const auto& [key, value, origin] : layer) {
      if (key == "model.preset")
        chosen = job_keys().find(key, origin).canonical(value, concat(origin, ": ", key, ": "));
      if (key == "model.family") family = value;
    }
  const std::vector<ModelPreset> presets = model_presets();
  const auto preset = std::ranges::find(presets, chosen, &ModelPreset::name);
  if (preset == presets.end()) return {};
  require(family.empty() || family == preset->family, "model.preset = ", chosen, " is a ", preset->family,
          ", but model.family = ", family, "; leave one of the two keys out");
  SettingLayer sizes{{"model.family", preset->family},
                     {"model.n_layer", concat(preset->n_layer)},
                     {"model.n_head", concat(preset->n_head)},
                     {"model.n_embd", concat(preset->n_embd)}};
  for (const auto& [key, value] : preset->more) sizes.push_back({key, value});
  return sizes;
}

/// Returns the last name of a path or an address, without its ending, as a part of a folder's name.
std::string short_name(const std::string& path) {
  const std::string address = path.substr(0, path.find_last_not_of('/') + 1);
  std::string name = std::filesystem::path(address.substr(0, address.find('?'))).stem().string();
  for (char& c : name)
    if (shell_quoted(std::string(1, c)).size() > 1) c = '_';
  constexpr size_t most_bytes = 60;  // file systems limit a name to 255
  return name.substr(0, most_bytes);
}

/// Returns the name of a run: that of its file. Without a file, runs of other models or data have other
/// names, so that a trial does not move a run aside that was given another model or text.
std::string run_name(const Arguments& arguments, const Settings& settings) {
  if (!arguments.config_file.empty())
    return std::filesystem::path(find_config_file(arguments.config_file)).stem().string();
  std::string name = arguments.program;
  if (!settings["model.from"].empty()) name += "-" + short_name(settings["model.from"]);
  if (settings.is_set("data.dataset")) name += "-" + short_name(settings["data.dataset"]);
  return name;
}

/// Chooses the folder of the results if it is open. Snapshots inside it have the place auto, so that the
/// configuration can be used with another folder.
void choose_folder(Settings& settings, const std::string& run_name) {
  // The name of a file may be any bytes.
  if (settings["log.dir"].empty()) settings.replace("log.dir", "runs/" + run_name);
  if (settings["snapshot.path"] == place_of_snapshots(SnapshotOptions(), settings["log.dir"]))
    settings.replace("snapshot.path", "auto");
}

RunRequest request_of(const Job& job, const Settings& settings, const Artifacts& artifacts) {
  return {.settings = settings,
          .options = job.snapshots,
          .log_folder = job.log.dir,
          .snapshots = job.snapshot_place(),
          .steps = job.length.steps,
          .patience = job.validation.patience,
          .artifacts = artifacts};
}

/// Gives keys that are left open the values of an earlier run that resumes. Rank 0 finds that run, and all
/// ranks use its values.
void inherit(Settings& settings, const Job& job, const World& world) {
  std::string there;
  on_first_rank(world, [&] { there = settings_to_resume(request_of(job, settings, {})); });
  there = world.communicator().broadcast_text(there, 0);
  if (there.empty()) return;
  std::vector<std::string> values;
  const SettingLayer inherited =
      inherited_values(settings, settings_of_earlier_run(job_keys(), there, "the earlier run"));
  const auto of_family = std::ranges::find(inherited, "model.family", &Setting::key);
  const std::string family = of_family == inherited.end() ? settings["model.family"] : of_family->value;
  for (const auto& [key, value, origin] : inherited) {
    if (is_of_other_family(key, family)) continue;
    settings.replace(key, value);
    values.push_back(concat(key, " = ", value));
  }
  if (world.is_first() && !values.empty())
    log_info(concat("not set, so taken from the resumed run: ", joined(values)));
}

/// Gives the values that depend on the ranks, and checks them.
void fit_to_ranks(Job& job, const World& world) {
  DistOptions& dist = job.dist;
  const int ranks = world.size();
  if (dist.replicas == 0) dist.replicas = ranks;
  require(ranks <= dist.replicas, "dist.replicas = ", dist.replicas, " is below the number of ranks, ", ranks,
          "; start at most ", dist.replicas, " ranks, or set dist.replicas = ", ranks,
          " (this gives other bits)");
  detail::resolve_hybrid(dist.shard, dist.group, world.local_size());
  require_sharding(job, ranks);
}

/// Turns AMX on or off. Throws UserError on every rank if AMX is requested and one of them lacks it.
void switch_amx(const Job& job, const World& world) {
  if (!job.compute.amx) return use_bf16_unit(false);
  require(
      !job.on_gpu() && job.compute.precision == DType::bf16,
      "train.amx = true needs train.device = cpu and train.precision = bf16: AMX multiplies nothing else");
  const std::vector<std::string> hosts =
      world.communicator().all_gather_text(has_bf16_unit() ? "" : host_name());
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    require(hosts[rank].empty(), "train.amx = true, but rank ", rank, " on ", hosts[rank],
            " has no AMX: its processor, its system or this build lacks it. Remove train.amx; the run then "
            "has other bits");
  use_bf16_unit(true);
}

/// Selects the GPU of this rank if the job computes on GPUs.
void select_gpu(const Job& job, const World& world) {
  if (!job.on_gpu() || device_of(current_stream()) == Device::cuda) return;
  set_current_stream(make_gpu_stream(world.gpu()));
  require_equal_on_all_ranks(world.communicator(), "their GPUs",
                             describe_gpu(gpu_of(current_stream())) + "\n");
}

/// Returns whether a text is given that is empty.
template <class Named>
bool is_empty(const std::variant<Named, std::string>& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr && text->empty();
}

/// Returns the command that measures the model of a run on its validation data.
std::string evaluation_of(const Settings& settings) {
  const std::string& from = settings["model.from"];
  std::string text = settings["data.validation"];
  if (text.empty()) text = settings["data.dataset"];
  return concat("evaluate ", shell_quoted(from.empty() ? settings["log.dir"] : from), " ",
                text == "random_tokens" ? "FILE" : shell_quoted(text));
}

void check_schedule(const Job& job, const Settings& settings) {
  const ScheduleOptions& schedule = job.schedule;
  const int64_t steps = job.length.steps, warmup = schedule.warmup_steps, decay = schedule.decay_steps;
  require(schedule.min_lr <= schedule.learning_rate, "train.min_lr = ", schedule.min_lr,
          " is above train.learning_rate = ", schedule.learning_rate,
          "; lower train.min_lr or raise train.learning_rate");
  require(steps == 0 || decay > 0 || warmup <= steps, "train.warmup_steps = ", warmup,
          " is more than train.steps = ", steps, ", the length of the run; lower train.warmup_steps");
  require(decay == 0 || warmup <= decay, "train.warmup_steps = ", warmup,
          " is more than train.decay_steps = ", decay, "; lower train.warmup_steps");
  require(schedule.cooldown_steps == 0 || schedule.schedule == Schedule::wsd,
          "train.cooldown_steps = ", schedule.cooldown_steps, " needs train.schedule = wsd, not ",
          settings["train.schedule"]);
  require(decay == 0 || warmup + schedule.cooldown_steps <= decay, "train.warmup_steps = ", warmup,
          " and train.cooldown_steps = ", schedule.cooldown_steps,
          " are together more than train.decay_steps = ", decay, "; lower one of them");
}

}  // namespace

Settings load_settings(const Arguments& arguments, const SettingLayer& defaults) {
  const std::vector<SettingLayer> layers = layers_of(arguments, job_keys());
  Settings settings(job_keys(), defaults);
  settings.add(sizes_of_preset(layers));
  for (const SettingLayer& layer : layers) settings.add(layer);
  choose_folder(settings, run_name(arguments, settings));
  settings.replace("train.device", name(chosen_device(job_of(settings))));
  return settings;
}

Job job_of(const Settings& settings) {
  Job job = job_keys().job_of(settings);
  check_together(job, settings);
  return job;
}

Job resolve(Settings settings, const World& world) {
  choose_folder(settings, "run");
  const Job given = job_of(settings);
  world.communicator().set_timeout(given.dist.timeout_s);
  settings.replace("train.device", name(chosen_device(given)));
  inherit(settings, given, world);
  Job job = job_of(settings);
  if (job.model.from.empty()) require_keys_of_family(job.model);
  job.compute.device = chosen_device(job);
  fit_to_ranks(job, world);
  require_equal_on_all_ranks(
      world.communicator(), "the configuration",
      concat("arithmetic = ", arithmetic_version, "\n", agreement_lines(job_keys().settings_of(job))));
  if (job.compute.threads == 0) job.compute.threads = world.share_of_cores();
  set_threads(job.threads());
  switch_amx(job, world);
  select_gpu(job, world);
  return job;
}

Job resolve(const Job& job, const World& world) { return resolve(job_keys().settings_of(job), world); }

Job with_length(const Job& job, const std::shared_ptr<const Dataset>& training, bool has_validation) {
  Job sized = job;
  auto& [steps, epochs] = sized.length;
  if (epochs > 0) {
    const Loader loader(training, {.replicas = job.dist.replicas,
                                   .batch_size = job.batches.batch_size,
                                   .shuffle = false,
                                   .whole_batches = job.batches.accumulate > 1,
                                   .prefetch = false});
    require(!__builtin_mul_overflow(epochs, loader.steps_per_epoch(), &steps), "train.epochs = ", epochs,
            " of ", loader.steps_per_epoch(), " steps are too many steps");
    epochs = 0;
    check_together(sized, job_keys().settings_of(sized));
  }
  require(job.compute.precision != DType::f16 || steps <= INT32_MAX, "train.steps = ", steps,
          ", but the loss scaler of train.precision = fp16 counts at most ", INT32_MAX, " steps");
  const int64_t patience = job.validation.patience;
  require(patience == 0 || has_validation, "train.patience = ", patience,
          " needs validation data, but there is none; leave the key out, set data.validation, or lower "
          "data.train_split if it is 1");
  return sized;
}

Job with_settings(const Job& job, const SettingLayer& changes) {
  Settings settings = job_keys().settings_of(job);
  settings.add(changes);
  Job changed = job_of(settings);
  changed.compute.device = chosen_device(changed);
  return changed;
}

RunRequest request_of(const Job& job, const Artifacts& artifacts) {
  return request_of(job, job_keys().settings_of(job), artifacts);
}

void check_together(const Job& job, const Settings& settings) {
  const auto& [steps, epochs] = job.length;
  const auto& [batch_size, accumulate] = job.batches;
  const ModelOptions& model = job.model;
  const ValidationOptions& validation = job.validation;
  require(steps == 0 || epochs == 0, "train.steps = ", steps, " and train.epochs = ", epochs,
          " both set the length of the run; set one of them to 0");
  require(steps > 0 || epochs > 0 || !settings.is_set("train.steps"),
          "train.steps = 0 trains nothing; set it or train.epochs, or use evaluate to measure a model on a "
          "text: ",
          evaluation_of(settings));
  require(steps > 0 || epochs > 0, "neither train.steps nor train.epochs is set; set one of them");
  if (model.from.empty()) family_of(model).check(model);
  // The sizes of model.from are not known yet.
  const bool is_sized = model.from.empty() || settings.is_set("model.n_layer");
  require(!is_sized || job.compute.recompute.segments <= model.n_layer,
          "train.recompute = ", settings["train.recompute"],
          " asks for more segments than model.n_layer = ", model.n_layer,
          " blocks; choose at most one segment per block, or train.recompute = block");
  require(model.n_positions == 0 || job.text.block_size <= model.n_positions,
          "data.block_size = ", job.text.block_size, " is more than model.n_positions = ", model.n_positions,
          "; lower data.block_size or raise model.n_positions");
  check_schedule(job, settings);
  require(batch_size % accumulate == 0, "train.batch_size = ", batch_size,
          " is not a multiple of train.accumulate = ", accumulate, "; change one of them");
  require(validation.patience == 0 || validation.eval_every > 0, "train.patience = ", validation.patience,
          " needs validations during the run; set train.eval_every above 0, not ", validation.eval_every);
  require(!is_empty(job.text.dataset),
          "data.dataset is empty; set the name of a data set or the path of a text file");
  require(!is_empty(job.text.tokenizer),
          "data.tokenizer is empty; set auto, char or the path of a tokenizer");
  require(job.snapshots.resume != Resume::required || !job.snapshot_place().empty(),
          "snapshot.resume = required needs snapshots, but snapshot.path = none; set snapshot.path");
}

Device chosen_device(const Job& job) {
  const std::optional<Device> wanted = job.compute.device;
  const bool has_gpu = wanted != Device::cpu && count_gpus() > 0;
  require(wanted != Device::cuda || has_gpu, "train.device = cuda: ", why_no_gpu(), "; or set auto or cpu");
  if (!has_gpu) return Device::cpu;
  const DType precision = job.compute.precision;
  const int64_t head = family_of(job.model).head_size(job.model);
  require(
      head <= 128 && (precision == DType::f32 || head % 8 == 0), "the model has ", head,
      " channels per head (model.n_embd / model.n_head, or model.head_dim); a GPU needs at most 128 and, in ",
      precision_name(precision), ", a multiple of 8; change them, or set train.device = cpu");
  return Device::cuda;
}

void require_sharding(const Job& job, int ranks) {
  const DistOptions& dist = job.dist;
  require(dist.shard == Shard::none || dist.reduction == Reduction::tree, "dist.shard = ", name(dist.shard),
          " needs dist.reduction = tree: each rank adds the gradients that it owns in the tree's order");
  require(dist.offload == Offload::none || dist.reduction == Reduction::tree,
          "dist.offload = ", name(dist.offload),
          " needs dist.reduction = tree: each rank updates the offloaded values that it owns");
  const Shard stage = detail::stage_with(dist.shard, dist.offload);
  require(!job.compute.tune_matmul || (stage != Shard::gradients && stage != Shard::full),
          "train.tune_matmul runs the whole model on rank 0, but ",
          dist.offload == Offload::all ? "dist.offload = all" : concat("dist.shard = ", name(dist.shard)),
          " is meant to avoid that: remove one of the two");
  detail::check_group(dist.shard, ranks, dist.group, dist.offload);
}

}  // namespace lockstep
