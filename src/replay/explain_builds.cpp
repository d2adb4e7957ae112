// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/json/json_field.h"
#include "lockstep/replay/explain_parts.h"
#include "lockstep/tensor/print.h"
#include "lockstep/tensor/safetensors.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t most_json_bytes = size_t{1} << 30;

/// A step of a run as one build's program `replay` computes it.
struct BuildsStep {
  Json json;
  SafeTensors tensors;
};

/// A folder of temporary files, removed at the end.
class Workspace {
 public:
  Workspace() : path_(make_temporary_folder("lockstep-explain")) {}
  ~Workspace() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

Descriptor new_file(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
  expect(bool(file), path, " cannot be written: ", std::strerror(errno));
  return file;
}

/// Runs a build's `replay` on a step of a run. Throws UserError with its last words if it fails.
BuildsStep run_replay(const std::string& program, const std::string& run, int64_t step,
                      const SettingLayer& overrides) {
  const Workspace workspace;
  const std::string output = workspace / "step.json", errors = workspace / "errors";
  const std::string tensors = workspace / "step.safetensors";
  const Descriptor to_output = new_file(output), to_errors = new_file(errors);
  std::vector<std::string> command = {program, run,      "--step",       concat(step), "--replica",
                                      "-1",    "--json", "--from-start", "--dump",     tensors};
  for (const auto& [key, value, origin] : overrides) command.push_back(concat(key, "=", value));
  Process process(
      {.command = command, .output = to_output.get(), .errors = to_errors.get(), .without_input = true});
  std::optional<Ending> ending;
  while (!(ending = process.wait(3600.0))) continue;
  // 1: it computes other bits than the record.
  require(ending->signal == 0 && ending->exit_code <= 1, program, " ended with ", describe(*ending), ": ",
          shortened(trimmed(read_file(errors).value_or("")), 300));
  return {parse_json<Json>(read_named_file(output), program, most_json_bytes), load_safetensors(tensors)};
}

const Tensor* tensor_in(const SafeTensors& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors.tensors, name, &NamedTensor::name);
  return found == tensors.tensors.end() ? nullptr : &found->tensor;
}

/// Sets the element and the bits of the first difference between two tensors.
void compare_tensor(const BuildsStep& a, const BuildsStep& b, const std::string& name,
                    DifferencePlace& place) {
  const Tensor* const of_a = tensor_in(a.tensors, name);
  const Tensor* const of_b = tensor_in(b.tensors, name);
  if (of_a == nullptr || of_b == nullptr || of_a->shape() != of_b->shape() || of_a->dtype() != of_b->dtype())
    return;
  const int64_t bytes = lockstep::bytes(of_a->dtype());
  const auto *bytes_a = reinterpret_cast<const char*>(of_a->view().data),
             *bytes_b = reinterpret_cast<const char*>(of_b->view().data);
  for (int64_t i = 0; i < of_a->size(); ++i) {
    if (std::memcmp(bytes_a + i * bytes, bytes_b + i * bytes, static_cast<size_t>(bytes)) == 0) continue;
    place.element = coordinates(i, of_a->shape());
    const auto bits = [bytes, i](const char* all) {
      std::string digits(all + i * bytes, static_cast<size_t>(bytes));
      std::ranges::reverse(digits);  // little-endian
      return hexadecimal(digits);
    };
    place.a = bits(bytes_a);
    place.b = bits(bytes_b);
    return;
  }
}

/// Returns the name of the first member of an object that differs, in the order of `a`.
std::string first_member(const Json& a, const Json& b) {
  for (const auto& [name, value] : a.items())
    if (!b.contains(name) || b[name] != value) return name;
  return "";
}

std::string tensor_name(int64_t replica, size_t micro_batch, const std::string& rest) {
  return concat("replica.", replica, ".micro_batch.", micro_batch, ".", rest);
}

/// Compares a micro-batch of two builds: its samples, then its operations in their order.
std::optional<DifferencePlace> compare_micro_batch(const BuildsStep& a, const BuildsStep& b, int64_t replica,
                                                   size_t index) {
  DifferencePlace place{.replica = replica, .micro_batch = static_cast<int64_t>(index)};
  const auto r = static_cast<size_t>(replica);
  const Json &of_a = a.json["replicas"][r]["micro_batches"][index],
             &of_b = b.json["replicas"][r]["micro_batches"][index];
  for (size_t s = 0; s < of_a["samples"].size(); ++s) {
    if (of_a["samples"][s] == of_b["samples"][s]) continue;
    place.operation = concat("sample ", s, " of the batch");
    compare_tensor(a, b, tensor_name(replica, index, "inputs"), place);
    place.a = of_a["samples"][s].get<std::string>();
    place.b = of_b["samples"][s].get<std::string>();
    return place;
  }
  compare_tensor(a, b, tensor_name(replica, index, "targets"), place);
  if (!place.element.empty()) {
    place.operation = "the targets of the batch";
    return place;
  }
  const Json &all_a = of_a["operations"], &all_b = of_b["operations"];
  for (size_t i = 0; i < all_a.size(); ++i) {
    const bool has_both = i < all_b.size() && all_a[i]["name"] == all_b[i]["name"];
    if (has_both && all_a[i]["hash"] == all_b[i]["hash"]) continue;
    place.operation = all_a[i]["name"].get<std::string>();
    place.direction = place.operation.starts_with("forward") ? "forward" : "backward";
    if (has_both)
      compare_tensor(
          a, b,
          tensor_name(replica, index,
                      concat("operation.", zero_padded(static_cast<int64_t>(i), 4), " ", place.operation)),
          place);
    return place;
  }
  return std::nullopt;
}

/// Compares a step that two builds have computed, in the order of the computation.
std::optional<DifferencePlace> compare_step(const BuildsStep& a, const BuildsStep& b) {
  DifferencePlace place;
  place.parameter = first_member(a.json["values_before"], b.json["values_before"]);
  if (!place.parameter.empty()) {
    place.operation = "the values before the step";
    compare_tensor(a, b, "before." + place.parameter, place);
    return place;
  }
  const Json& replicas = a.json["replicas"];
  for (size_t r = 0; r < replicas.size(); ++r)
    for (size_t m = 0; m < replicas[r]["micro_batches"].size(); ++m)
      if (auto found = compare_micro_batch(a, b, static_cast<int64_t>(r), m)) return found;
  if (a.json["loss_bits"] != b.json["loss_bits"] || a.json["gradient_norm"] != b.json["gradient_norm"]) {
    place.operation = "the sum over the replicas or its norm";
    place.a = a.json["gradient_norm"].dump();
    place.b = b.json["gradient_norm"].dump();
    return place;
  }
  if (a.json["learning_rate"] != b.json["learning_rate"]) {
    place.operation = "the learning rate";
    place.a = a.json["learning_rate"].dump();
    place.b = b.json["learning_rate"].dump();
    return place;
  }
  place.parameter = first_member(a.json["values_after"], b.json["values_after"]);
  if (place.parameter.empty()) return std::nullopt;
  place.operation = "the update by the optimizer";
  compare_tensor(a, b, "after." + place.parameter, place);
  return place;
}

/// Returns the path of a build's program `replay`: in `given`, else beside the program of the run.
std::string replay_of(const RecordedRun& run, int64_t step, const std::string& given) {
  const std::string folder =
      given.empty() ? fs::path(run.start_of(step).program).parent_path().string() : given;
  return folder.empty() ? "" : folder + "/replay";
}

std::string text_of(const DifferencePlace& place) {
  std::string text = concat("In step ", place.step);
  if (place.replica >= 0) text += concat(", replica ", place.replica, ", micro-batch ", place.micro_batch);
  text += concat(", the first other bits are in ", place.operation);
  if (!place.parameter.empty()) text += concat(" of ", place.parameter);
  if (!place.element.empty()) text += concat(", element ", place.element);
  if (!place.a.empty())
    text += concat(": ", shortened(place.a, 120), " by the build of A and ", shortened(place.b, 120),
                   " by that of B");
  return text + ".";
}

}  // namespace

BuildsResult compare_builds(const ComparedRuns& runs, const ExplainOptions& options, int64_t last,
                            Explanation& explanation) {
  const std::string program_a = replay_of(runs.a, last, options.programs_a);
  const std::string program_b = replay_of(runs.b, last, options.programs_b);
  std::error_code ignored;
  if (!program_a.empty() && fs::equivalent(program_a, program_b, ignored)) {
    explanation.because =
        concat(fs::path(program_a).parent_path().string(),
               " had both builds, one after the other. Build the older one again in another "
               "folder, and name that by --programs-a or --programs-b.");
    return BuildsResult::unavailable;
  }
  for (const auto& [program, name] : {std::pair(program_a, "a"), std::pair(program_b, "b")})
    if (!fs::is_regular_file(program, ignored)) {
      explanation.because =
          concat("The builds cannot be compared, because ", program.empty() ? "its program" : program,
                 " is missing: name the folder of the programs by --programs-", name, ".");
      return BuildsResult::unavailable;
    }
  const auto snapshot = runs.a.snapshot_before(last - 1);
  const int64_t base = snapshot ? snapshot->state().step : 0;
  // Builds that differ in every step already have other values in the step before `last`. Both compute the
  // first step after the snapshot from the same values.
  std::set<int64_t> compared;
  for (const int64_t step : {std::max(base + 1, last - 1), last, base + 1, base + 2}) {
    if (step > last || !compared.insert(step).second) continue;
    const BuildsStep a = run_replay(program_a, runs.a.folder, step, options.overrides);
    const BuildsStep b = run_replay(program_b, runs.a.folder, step, options.overrides);
    auto place = compare_step(a, b);
    if (!place) continue;
    if (place->operation == "the values before the step" && step > base + 1) continue;
    place->step = step;
    explanation.cause = "build";
    explanation.place = place;
    explanation.because = concat("The builds compute different bits. ", text_of(*place));
    return BuildsResult::differ;
  }
  return BuildsResult::equal;
}

}  // namespace lockstep
