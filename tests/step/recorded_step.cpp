// SPDX-License-Identifier: Apache-2.0
#include "step/recorded_step.h"

#include <cstdlib>

#include "emulator/emulator.h"
#include "lockstep/core/gpu.h"
#include "lockstep/nn/module.h"
#include "lockstep/train/language_task.h"
#include "lockstep/train/step_runner.h"

namespace lockstep {
namespace {

/// A scope in which the current stream is that of an emulated H100, which lists work instead of executing it.
class ListedGpu {
 public:
  ListedGpu() : before_(current_stream()), model_before_(emulator::model()) {
    ::setenv("LOCKSTEP_EMULATED_GPU_BYTES", "85899345920", 1);
    emulator::model() = {.major = 9, .minor = 0, .multiprocessors = 132};
    set_current_stream(make_gpu_stream(0));
  }
  ~ListedGpu() {
    launch_observer() = nullptr;
    set_current_stream(before_);
    emulator::model() = model_before_;
    ::unsetenv("LOCKSTEP_EMULATED_GPU_BYTES");
  }
  ListedGpu(const ListedGpu&) = delete;
  ListedGpu& operator=(const ListedGpu&) = delete;

 private:
  emulator::Listing listing_;
  Stream before_;
  emulator::Model model_before_;
};

/// The calls of contracts so far. Listed work refers to them by its tag.
class Calls {
 public:
  /// Observes this thread's kernels from now on. Tag 0 is for work below no call.
  void observe(ParameterNames names) {
    calls_ = {Call{}};
    launch_observer() = [this, names = std::move(names)](const std::type_info& type, const void* kernel) {
      emulator::listing_tag() = calls_.size();
      calls_.push_back(call_of(type, kernel, names));
    };
  }
  const Call& operator[](uint64_t tag) const { return calls_.at(tag); }

 private:
  std::vector<Call> calls_;
};

bool is_below_a_call(const emulator::Listed& one) {
  return one.kind == emulator::Listed::Kind::kernel || one.kind == emulator::Listed::Kind::product;
}

/// Returns "adamw_kernel" for "void adamw_kernel<8, __nv_bfloat16>".
std::string plain_name(std::string name) {
  name = name.substr(0, name.find('<'));
  const size_t begin = name.find_last_of(" :");
  return begin == std::string::npos ? name : name.substr(begin + 1);
}

std::string kernel_name(const emulator::Listed& one) {
  switch (one.kind) {
    case emulator::Listed::Kind::kernel:
      return plain_name(emulator::function_name(one.kernel));
    case emulator::Listed::Kind::product:
      return "product";
    case emulator::Listed::Kind::copy:
      return "copy";
    case emulator::Listed::Kind::fill:
      return "fill";
    default:
      throw Error("the step has work of an unknown kind");
  }
}

/// Compares the figures of a product's contract with those of the descriptors that cuBLASLt got. Those
/// include the sums of columns, which are a pass of their own.
void expect_as_called(const Call& call, const Pass& pass, const ListedKernel& found) {
  if (pass.kernel != "product") return;
  const double sums = found.of_product.bytes - pass.cost.bytes;
  expect(found.of_product.flops == pass.cost.flops && sums >= 0 && sums < 1e5, call.label,
         ": cuBLASLt moves ", found.of_product.bytes, " bytes for ", found.of_product.flops,
         " operations, not ", pass.cost.bytes, " for ", pass.cost.flops);
}

/// Appends the launches of one call: its passes, matched with the kernels that were listed below it.
void append_call(const Call& call, const std::vector<ListedKernel>& listed, bool is_in_graph,
                 std::vector<StepLaunch>& launches) {
  size_t next = 0;
  for (const Pass& pass : call.passes(listed)) {
    if (!pass.is_of_library) {
      const ListedKernel found = next < listed.size() ? listed[next++] : ListedKernel{.name = "nothing"};
      expect(found.name.find(pass.kernel) != std::string::npos, call.label, ": a launch of ", pass.kernel,
             " was expected, but there is ", found.name, ": correct tests/step/passes.cpp");
      expect_as_called(call, pass, found);
    }
    launches.push_back({.part = pass.part,
                        .label = call.label,
                        .kernel = pass.kernel,
                        .cost = pass.cost,
                        .is_in_graph = is_in_graph,
                        .is_of_library = pass.is_of_library});
  }
  expect(next == listed.size(), call.label, " launches ", listed[std::min(next, listed.size() - 1)].name,
         ", which has no figures: add it to tests/step/passes.cpp");
}

std::vector<StepLaunch> launches_of(const std::vector<emulator::Listed>& list, const Calls& calls) {
  std::vector<StepLaunch> launches;
  for (size_t i = 0; i < list.size();) {
    const emulator::Listed& first = list[i];
    if (!is_below_a_call(first)) {
      launches.push_back({.label = first.kind == emulator::Listed::Kind::copy ? "copies" : "fills",
                          .kernel = kernel_name(first),
                          .cost = {.bytes = first.bytes},
                          .is_in_graph = first.is_in_graph});
      ++i;
      continue;
    }
    std::vector<ListedKernel> listed;
    for (; i < list.size() && is_below_a_call(list[i]) && list[i].tag == first.tag; ++i)
      listed.push_back({.name = kernel_name(list[i]),
                        .blocks = list[i].blocks,
                        .of_product = {.bytes = list[i].bytes, .flops = list[i].flops}});
    append_call(calls[first.tag], listed, first.is_in_graph, launches);
  }
  return launches;
}

}  // namespace

std::vector<StepLaunch> record_step(const Job& job) {
  const ListedGpu gpu;
  const World world = World::alone();
  const LanguageData data = language_data(job, world, nullptr);
  const std::unique_ptr<LanguageModel> model = make_model(job, data.vocabulary_size);
  // Drawing the initial values would take most of the time.
  for (const NamedTensor& parameter : model->parameters()) parameter.tensor.initialize(constant_values(0));
  const LanguageTask task(job, *model, data);
  ParameterSpace space(task.parameters(), {.group = task.group_rule()});
  TrainingEngine engine(job, world, task, space);
  StepRunner runner(job, task, engine, [] {});
  const int64_t samples = job.batches.batch_size;
  const Batch batch{.inputs = make_batch_memory(data.training->input(), samples, cpu_stream()),
                    .targets = make_batch_memory(data.training->target(), samples, cpu_stream()),
                    .samples = samples};
  Calls calls;
  // The first step creates objects, the second is recorded, and the third is replayed.
  for (int64_t step = 0; step < 3; ++step) {
    emulator::Listing::take();
    runner.start({.index = step, .batches = {batch}}, job.schedule.learning_rate);
    runner.collect();
    if (step == 0) calls.observe(ParameterNames(space, space.gradients().memory()));
  }
  return launches_of(emulator::Listing::take(), calls);
}

}  // namespace lockstep
