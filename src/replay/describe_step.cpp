// SPDX-License-Identifier: Apache-2.0
#include "lockstep/replay/describe_step.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/text.h"
#include "lockstep/metrics/chain.h"
#include "lockstep/tensor/create.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

/// A number of a loss or a gradient, with four digits.
std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", number);
  return text;
}

Json number_or_null(double number) { return std::isfinite(number) ? Json(number) : Json(nullptr); }

/// Returns a text in quotes, with escapes for all that is no printable character.
std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::span<const int32_t> row(const Tensor& ids, int64_t sample) {
  const auto columns = static_cast<size_t>(ids.size() / ids.shape()[0]);
  return {ids.data<int32_t>() + sample * static_cast<int64_t>(columns), columns};
}

bool is_text(const Batch& batch, const Tokenizer* tokenizer) {
  return tokenizer != nullptr && batch.inputs.dtype() == DType::i32;
}

/// Returns a sample as text: the tokens, or the numbers and their targets.
std::string sample_text(const Batch& batch, int64_t sample, const Tokenizer* tokenizer) {
  if (is_text(batch, tokenizer)) return tokenizer->decode(row(batch.inputs, sample));
  std::vector<std::string> numbers;
  for (const double value : to_doubles(batch.inputs.slice(sample, sample + 1)))
    numbers.push_back(short_number(value));
  std::vector<std::string> targets;
  for (const double value : to_doubles(batch.targets.slice(sample, sample + 1)))
    targets.push_back(short_number(value));
  return concat(joined(numbers, " "), " -> ", joined(targets, " "));
}

/// The loss of one token.
struct TokenLoss {
  int64_t sample, place;
  double loss;
};

/// Returns the losses of the tokens that count, the largest first.
std::vector<TokenLoss> largest_losses(const MicroBatchInput& input, const MicroBatchTrace& trace) {
  std::vector<TokenLoss> all;
  if (!trace.losses) return all;
  const std::vector<double> losses = to_doubles(trace.losses);
  const int64_t columns = std::max<int64_t>(1, trace.losses.size() / input.batch.samples);
  const auto* targets = input.batch.targets.data<int32_t>();
  for (size_t i = 0; i < losses.size(); ++i)
    if (targets[i] >= 0)
      all.push_back({static_cast<int64_t>(i) / columns, static_cast<int64_t>(i) % columns, losses[i]});
  std::ranges::stable_sort(all, [](const TokenLoss& a, const TokenLoss& b) { return a.loss > b.loss; });
  return all;
}

std::string losses_text(const MicroBatchInput& input, const MicroBatchTrace& trace,
                        const Tokenizer* tokenizer) {
  constexpr size_t shown = 8;
  std::string text;
  const std::vector<TokenLoss> losses = largest_losses(input, trace);
  if (losses.empty()) return text;
  text += concat("the largest losses of ", counted(std::ssize(losses), "token"), ":\n");
  for (const auto& [sample, place, loss] : std::span(losses).first(std::min(shown, losses.size()))) {
    text += concat("  sample ", sample, ", place ", place, ": ", fixed_text(loss, 4));
    if (is_text(input.batch, tokenizer)) {
      const auto before = row(input.batch.inputs, sample).first(static_cast<size_t>(place) + 1);
      const int32_t target = row(input.batch.targets, sample)[static_cast<size_t>(place)];
      text += concat("  ", quoted(tokenizer->decode(std::span(&target, 1))), " after ",
                     quoted(tokenizer->decode(before.last(std::min<size_t>(before.size(), 24)))));
    }
    text += "\n";
  }
  return text;
}

/// A table whose first column is aligned to the left and whose others are aligned to the right.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& cells : rows)
    for (size_t c = 0; c < cells.size(); ++c) {
      widths.resize(std::max(widths.size(), c + 1));
      widths[c] = std::max(widths[c], cells[c].size());
    }
  std::string text;
  for (const auto& cells : rows) {
    std::string line = "  ";
    for (size_t c = 0; c < cells.size(); ++c)
      line += c == 0 ? left_aligned(cells[c], widths[c])
                     : concat("  ", std::string(widths[c] - cells[c].size(), ' '), cells[c]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string not_finite_text(int64_t count) { return count == 0 ? "" : concat(count, " not finite"); }

std::string parameters_table(const ReplicaTrace& replica) {
  std::vector<std::vector<std::string>> rows = {
      {"parameter", "shape", "rms", "gradient rms", "largest", "hash of the gradient", ""}};
  for (size_t p = 0; p < replica.gradients.size(); ++p) {
    const TracedParameter& parameter = replica.traces[0].parameters[p];
    const Tensor& gradient = replica.gradients[p].tensor;
    const Statistics of_gradient = statistics_of(gradient);
    rows.push_back({parameter.name, concat(parameter.shape), short_number(parameter.value.root_mean_square),
                    short_number(of_gradient.root_mean_square), short_number(of_gradient.largest),
                    hash_text(elements_hash(gradient)), not_finite_text(of_gradient.not_finite)});
  }
  return table(rows);
}

std::string operations_table(const MicroBatchTrace& trace) {
  std::vector<std::vector<std::string>> rows = {{"operation", "shape", "rms", "largest", "zeros", ""}};
  for (const TracedTensor& tensor : trace.tensors) {
    if (tensor.is_of_parameter) continue;
    const Statistics& of = tensor.statistics;
    const double zeros = static_cast<double>(of.zeros) / static_cast<double>(std::max<int64_t>(1, of.count));
    rows.push_back({tensor.name(), concat(tensor.shape), short_number(of.root_mean_square),
                    short_number(of.largest), concat(fixed_text(zeros * 100.0, 0), " %"),
                    not_finite_text(of.not_finite)});
  }
  return table(rows);
}

Json json_of(const Statistics& statistics) {
  return {{"count", statistics.count},           {"zeros", statistics.zeros},
          {"not_finite", statistics.not_finite}, {"mean", statistics.mean},
          {"rms", statistics.root_mean_square},  {"largest", statistics.largest}};
}

std::vector<int64_t> extents(const Shape& shape) {
  std::vector<int64_t> all;
  for (const int64_t extent : shape) all.push_back(extent);
  return all;
}

Json json_of(const MicroBatchInput& input, const MicroBatchTrace& trace, const Tokenizer* tokenizer) {
  Json json = {{"index", input.index},
               {"first_sample", input.batch.first_sample},
               {"loss", number_or_null(trace.loss)},
               {"loss_bits", RunChain::bits_text(trace.loss)},
               {"samples", Json::array()},
               {"token_losses", Json::array()},
               {"operations", Json::array()}};
  for (int64_t sample = 0; sample < input.batch.samples; ++sample)
    json["samples"].push_back(sample_text(input.batch, sample, tokenizer));
  if (trace.losses)
    for (const double loss : to_doubles(trace.losses)) json["token_losses"].push_back(number_or_null(loss));
  for (const TracedTensor& tensor : trace.tensors)
    json["operations"].push_back({{"name", tensor.name()},
                                  {"shape", extents(tensor.shape)},
                                  {"dtype", concat(tensor.dtype)},
                                  {"hash", hash_text(tensor.hash)},
                                  {"statistics", json_of(tensor.statistics)}});
  return json;
}

Json json_of(const ReplicaTrace& replica, const Tokenizer* tokenizer) {
  Json json = {{"replica", replica.inputs[0].batch.replica},
               {"epoch", replica.inputs[0].epoch},
               {"loss", number_or_null(replica.loss)},
               {"loss_bits", RunChain::bits_text(replica.loss)},
               {"micro_batches", Json::array()},
               {"parameters", Json::array()}};
  if (replica.inputs[0].loss_scale) json["loss_scale"] = *replica.inputs[0].loss_scale;
  for (size_t i = 0; i < replica.traces.size(); ++i)
    json["micro_batches"].push_back(json_of(replica.inputs[i], replica.traces[i], tokenizer));
  for (size_t p = 0; p < replica.gradients.size(); ++p) {
    const TracedParameter& parameter = replica.traces[0].parameters[p];
    const Tensor& gradient = replica.gradients[p].tensor;
    json["parameters"].push_back({{"name", parameter.name},
                                  {"shape", extents(parameter.shape)},
                                  {"value", json_of(parameter.value)},
                                  {"gradient", json_of(statistics_of(gradient))},
                                  {"gradient_hash", hash_text(elements_hash(gradient))}});
  }
  return json;
}

std::string dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Describes the work of a replica.
std::string replica_text(const ReplicaTrace& replica, const Tokenizer* tokenizer) {
  std::string text;
  for (size_t i = 0; i < replica.traces.size(); ++i) {
    const MicroBatchInput& input = replica.inputs[i];
    const MicroBatchTrace& trace = replica.traces[i];
    text += concat("\nreplica ", input.batch.replica, ", micro-batch ", input.index, ", epoch ", input.epoch,
                   ": loss ", trace.loss, " (", RunChain::bits_text(trace.loss), ")\n");
    for (int64_t sample = 0; sample < input.batch.samples; ++sample)
      text += concat("  sample ", sample, ": ", quoted(sample_text(input.batch, sample, tokenizer)), "\n");
    text += losses_text(input, trace, tokenizer);
  }
  text += concat(
      "\nparameters, and the gradient of ",
      replica.traces.size() > 1 ? "all micro-batches" : "the micro-batch",
      replica.inputs[0].loss_scale ? concat(" times the loss scale ", *replica.inputs[0].loss_scale) : "",
      ":\n", parameters_table(replica));
  text += concat("\noperations of micro-batch ", replica.inputs[0].index, ", in their order:\n",
                 operations_table(replica.traces[0]));
  return text;
}

}  // namespace

std::string describe(const StepReplay& step, const Tokenizer* tokenizer) {
  const StepResult& result = step.replayed.result;
  const int64_t again = step.replayed.step - 1 - step.began_at;
  std::string text =
      concat(step.run, ", step ", step.replayed.step, ": ", counted(again, "step"),
             " before it computed again from ",
             step.began_at > 0 ? concat("the snapshot of step ", step.began_at) : "the initial values", "\n");
  text += concat("loss ", result.loss, " (", step.replayed.loss_bits(), "), gradient norm ",
                 result.gradient_norm, ", learning rate ", step.replayed.learning_rate, ": ",
                 step.recorded.step == 0 ? "metrics.jsonl has no line of the step"
                 : step.is_equal()       ? "the bits of the run"
                                         : concat("NOT the bits of the run, which has the loss ",
                                                  step.recorded.loss, " (", step.recorded.loss_bits,
                                                  ") and the norm ", step.recorded.gradient_norm, step.hint),
                 "\n");
  for (const ReplicaTrace& replica : step.traced) text += replica_text(replica, tokenizer);
  return text;
}

std::string to_json(const StepReplay& step, const Tokenizer* tokenizer) {
  const StepResult& result = step.replayed.result;
  Json json = {{"run", step.run},
               {"step", step.replayed.step},
               {"began_at", step.began_at},
               {"is_equal", step.is_equal()},
               {"loss", number_or_null(result.loss)},
               {"loss_bits", step.replayed.loss_bits()},
               {"recorded_loss_bits", step.recorded.loss_bits},
               {"gradient_norm", number_or_null(result.gradient_norm)},
               {"recorded_gradient_norm", number_or_null(step.recorded.gradient_norm)},
               {"learning_rate", step.replayed.learning_rate}};
  for (const NamedTensor& value : step.before)
    json["values_before"][value.name] = hash_text(elements_hash(value.tensor));
  for (const NamedTensor& value : step.after)
    json["values_after"][value.name] = hash_text(elements_hash(value.tensor));
  for (const ReplicaTrace& replica : step.traced) json["replicas"].push_back(json_of(replica, tokenizer));
  return dumped(json);
}

std::string describe(const BundleReplay& bundle) {
  constexpr size_t shown = 5;
  std::vector<std::string> names = bundle.differences;
  const size_t count = names.size();
  if (count > shown) names.resize(shown);
  const std::string more = count > shown ? concat(" and ", count - shown, " more") : "";
  return concat(bundle.origin, ": ",
                bundle.is_equal() ? "the bits of the bundle"
                                  : concat("NOT the bits of the bundle, in ", joined(names), more,
                                           "; it is of the scope ", bundle.scope),
                "\n", replica_text(bundle.replica, bundle.tokenizer.get()));
}

std::string to_json(const BundleReplay& bundle) {
  Json json = {{"origin", bundle.origin},
               {"build", bundle.build},
               {"scope", bundle.scope},
               {"is_equal", bundle.is_equal()},
               {"differences", bundle.differences}};
  json["replica"] = json_of(bundle.replica, bundle.tokenizer.get());
  return dumped(json);
}

SafeTensors tensors_of(const ReplicaTrace& replica) {
  SafeTensors all;
  const std::string of_replica = concat("replica.", replica.inputs[0].batch.replica, ".");
  for (size_t i = 0; i < replica.traces.size(); ++i) {
    const std::string prefix = concat(of_replica, "micro_batch.", replica.inputs[i].index, ".");
    all.tensors.push_back({prefix + "inputs", replica.inputs[i].batch.inputs});
    all.tensors.push_back({prefix + "targets", replica.inputs[i].batch.targets});
    if (replica.traces[i].losses) all.tensors.push_back({prefix + "losses", replica.traces[i].losses});
    const std::vector<TracedTensor>& tensors = replica.traces[i].tensors;
    for (size_t t = 0; t < tensors.size(); ++t)
      if (tensors[t].values)
        all.tensors.push_back(
            {concat(prefix, "operation.", zero_padded(static_cast<int64_t>(t), 4), " ", tensors[t].name()),
             tensors[t].values});
  }
  for (const NamedTensor& gradient : replica.gradients)
    all.tensors.push_back({concat(of_replica, "gradient.", gradient.name), gradient.tensor});
  return all;
}

SafeTensors tensors_of(const StepReplay& step) {
  SafeTensors all;
  for (const ReplicaTrace& replica : step.traced)
    for (NamedTensor& tensor : tensors_of(replica).tensors) all.tensors.push_back(std::move(tensor));
  for (const NamedTensor& value : step.before) all.tensors.push_back({"before." + value.name, value.tensor});
  for (const NamedTensor& value : step.after) all.tensors.push_back({"after." + value.name, value.tensor});
  return all;
}

}  // namespace lockstep
